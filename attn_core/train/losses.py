"""What training makes small."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import is_number, shown
from attn_core.data import Batch, Vocab


def token_loss(logits: Tensor, target: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy per true token, in nats; padding counts for nothing.

    Shapes: ``logits (B, T, V)``, ``target (B, T)`` of token ids, ``Vocab.PAD`` where padded; returns a scalar. With
    ``smoothing`` the target is the true token with probability 1 − smoothing, and any token with what is left.

    Source: Szegedy et al. 2016, section 7 (label smoothing).
    """
    flat = logits.flatten(0, 1).float()
    return functional.cross_entropy(flat, target.flatten(), ignore_index=Vocab.PAD, label_smoothing=smoothing)


def target_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The token loss of the target, each token from the source and the true tokens before it; a scalar, in nats.

    The model is called as ``model(source, source_lengths, target_in)`` and gives logits ``(B, T, V)``.
    """
    return token_loss(model(batch.source, batch.source_lengths, batch.target_in), batch.target_out)


def smoothed_loss(smoothing: float) -> Callable[[nn.Module, Batch], Tensor]:
    """``target_loss`` with label smoothing, for ``fit(loss=…)``; the paper's Transformer has .1.

    Raises:
        ValueError: ``smoothing`` is not in [0, 1).

    Source: Vaswani et al. 2017, section 5.4.
    """
    if not is_number(smoothing) or not 0.0 <= smoothing < 1.0:
        raise ValueError(f"smoothing: expected a share in [0, 1), got {shown(smoothing)}")

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        logits = model(batch.source, batch.source_lengths, batch.target_in)
        return token_loss(logits, batch.target_out, smoothing=smoothing)

    return loss
