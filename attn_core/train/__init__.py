"""Training, on one device or on many processes: ``fit``, losses, and schedules of the learning rate."""

from attn_core.train.loop import History, fit, train_step
from attn_core.train.losses import smoothed_loss, target_loss, token_loss
from attn_core.train.schedules import cosine, inverse_square_root

__all__ = [
    "History",
    "cosine",
    "fit",
    "inverse_square_root",
    "smoothed_loss",
    "target_loss",
    "token_loss",
    "train_step",
]
