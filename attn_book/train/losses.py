"""Losses: functions of a model and a batch for ``fit`` to make small.

A loss gives a sum and the count of what it sums: target tokens, hidden tokens, texts or pairs. Their quotient is the
mean. ``fit`` needs both, because the mean over several batches is the quotient of the totals.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.data import Batch, Vocab
from attn_core.contract import accum_dtype, check_ids, check_integers, check_share, is_number, kind, shown

Loss = Callable[[nn.Module, Any], tuple[Tensor, Tensor | int]]
AnyLoss = TypeVar("AnyLoss", bound=Callable[..., Any])


def token_loss(
    logits: Tensor, target: Tensor, *, smoothing: float = 0.0, padding_id: int | None = Vocab.PAD
) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the true tokens, summed, in nats, and their number; padding is left out of both.

    Shapes: ``logits (…, V)``, ``target (…)`` of token ids, ``padding_id`` where padded; returns two scalars. Without a
    padding id, None, every token counts: in many other tokenizers 0 is a token. With ``smoothing`` the target is the
    true token with probability 1 − smoothing, and otherwise any token at random.

    Raises:
        ValueError: if ``logits`` are no floating tensor, ``target`` has another shape or kind or lies outside the
            vocabulary, ``smoothing`` is not in [0, 1), or ``padding_id`` is neither None nor an integer.

    Source: Szegedy et al. 2016, section 7 (label smoothing).
    """
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.dim() < 2:
        raise ValueError(f"logits: expected a floating tensor (…, V), got {kind(logits)}")
    check_integers("target", target, axes=logits.dim() - 1)
    if target.shape != logits.shape[:-1]:
        raise ValueError(f"target: expected shape {tuple(logits.shape[:-1])}, got {tuple(target.shape)}")
    check_share("smoothing", smoothing)
    if padding_id is not None and (not isinstance(padding_id, int) or isinstance(padding_id, bool)):
        raise ValueError(f"padding_id: expected an integer or None, got {shown(padding_id)}")
    padded = torch.zeros_like(target, dtype=torch.bool) if padding_id is None else target == padding_id
    check_ids("target", target.masked_fill(padded, 0), logits.shape[-1])
    flat, ids = logits.flatten(0, -2).to(accum_dtype(logits)), target.long().masked_fill(padded, -100)  # PyTorch's mark
    loss = functional.cross_entropy(flat, ids.flatten(), label_smoothing=smoothing, reduction="sum")
    return loss, (~padded).sum()


def target_loss(
    model: nn.Module, batch: Batch, *, smoothing: float = 0.0, padding_id: int | None = Vocab.PAD
) -> tuple[Tensor, Tensor]:
    """The token loss of the target, each token given the source and the true tokens before it (teacher forcing).

    The model is called as ``model(source, source_lengths, target_in)`` and gives logits ``(B, T, V)``.
    """
    logits = model(batch.source, batch.source_lengths, batch.target_in)
    return token_loss(logits, batch.target_out, smoothing=smoothing, padding_id=padding_id)


def smoothed_loss(smoothing: float, *, padding_id: int | None = Vocab.PAD) -> Loss:
    """``target_loss`` with label smoothing, for ``fit(loss=…)``; the original Transformer was trained with .1.

    Raises:
        ValueError: if ``smoothing`` is not in [0, 1).

    Source: Vaswani et al. 2017, section 5.4.
    """
    check_share("smoothing", smoothing)
    return partial(target_loss, smoothing=smoothing, padding_id=padding_id)


def needs_whole_batch(loss: AnyLoss) -> AnyLoss:
    """Mark a loss that is not a sum over the examples of a batch, so that ``fit`` refuses to split a batch for it.

    Such a loss compares the examples with one another, or adds means that are taken over different numbers.
    """
    loss.needs_whole_batch = True  # type: ignore[attr-defined]
    return loss


def sum_and_count(value: object) -> tuple[Tensor, Tensor]:
    """What a loss gave, as two scalars of one dtype, which is float32 at least.

    Raises:
        ValueError: if it is not a scalar tensor and a number.
    """
    parts = value if isinstance(value, tuple) else (value,)
    is_scalar = [isinstance(part, Tensor) and part.dim() == 0 for part in parts]
    if len(parts) != 2 or not is_scalar[0] or not (is_scalar[1] or is_number(parts[1])):
        kinds = ", ".join(kind(part) for part in parts)
        raise ValueError(f"loss: expected a scalar tensor, the sum, and a count, got {kinds}")
    total = parts[0].to(torch.promote_types(parts[0].dtype, torch.float32))
    return total, torch.as_tensor(parts[1], dtype=total.dtype, device=total.device)
