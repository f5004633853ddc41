"""Training, on one device or on many processes: ``fit``, losses, and schedules of the learning rate."""

from attn_core.train.loop import fit, train_step
from attn_core.train.losses import Loss, needs_whole_batch, smoothed_loss, target_loss, token_loss
from attn_core.train.precision import Precision
from attn_core.train.resume import History
from attn_core.train.schedules import cosine

__all__ = [
    "History",
    "Loss",
    "Precision",
    "cosine",
    "fit",
    "needs_whole_batch",
    "smoothed_loss",
    "target_loss",
    "token_loss",
    "train_step",
]
