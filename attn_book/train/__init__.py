"""Training, on one device or on many processes: ``fit``, losses, and schedules of the learning rate."""

from attn_book.train.loop import fit, train_step
from attn_book.train.losses import Loss, needs_whole_batch, smoothed_loss, target_loss, token_loss
from attn_book.train.precision import Precision
from attn_book.train.reinforce import reinforce_loss
from attn_book.train.resume import History
from attn_book.train.schedules import cosine

__all__ = [
    "History",
    "Loss",
    "Precision",
    "cosine",
    "fit",
    "needs_whole_batch",
    "reinforce_loss",
    "smoothed_loss",
    "target_loss",
    "token_loss",
    "train_step",
]
