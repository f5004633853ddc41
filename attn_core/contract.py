"""The checks behind the attention contract, and the words of their messages."""

import math
import reprlib
from numbers import Real

import torch
from torch import Tensor, nn

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None,
    bias: Tensor | None,
    causal: bool,
    scale: float | None,
) -> None:
    """Check the arguments of a mechanism call against the contract in ``attn_core.__doc__``.

    Raises:
        ValueError: an argument's kind, dtype, device or shape does not fit; the message names it.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name}: expected a tensor, got {type(tensor).__name__}")
        if tensor.dim() != 4:
            raise ValueError(f"{name}: expected 4 axes (batch, heads, length, size), got shape {tuple(tensor.shape)}")
        if not tensor.dtype.is_floating_point:
            raise ValueError(f"{name}: expected a floating dtype, got {tensor.dtype}")
        if tensor.dtype != q.dtype:
            raise ValueError(f"{name}: expected the dtype of q, {q.dtype}, got {tensor.dtype}")
        if tensor.device != q.device:
            raise ValueError(f"{name}: expected the device of q, {q.device}, got {tensor.device}")
    batch, heads, queries, size = q.shape
    key_heads, keys = k.shape[1], k.shape[2]
    if k.shape[0] != batch or k.shape[3] != size:
        raise ValueError(f"k: expected shape ({batch}, G, S, {size}) to go with q, got {tuple(k.shape)}")
    if key_heads == 0 or heads < key_heads or heads % key_heads:
        raise ValueError(f"k: expected a number of heads that divides q's {heads}, got {key_heads}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v: expected shape {(*k.shape[:3], 'Dv')} to go with k, got {tuple(v.shape)}")
    if size == 0:
        raise ValueError("q: expected a head size of at least 1, got 0")
    scores = (batch, heads, queries, keys)
    if mask is not None:
        check_mask(mask, scores, q.device)
    if bias is not None:
        check_bias(bias, scores, q.device)
    if not isinstance(causal, bool):
        raise ValueError(f"causal: expected True or False, got {shown(causal)}")
    check_scale(scale)


def check_bias(bias: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """Check that ``bias`` is floating, on ``device``, and broadcasts to the scores' ``shape``.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(bias, Tensor) or not bias.dtype.is_floating_point:
        raise ValueError(f"bias: expected a floating tensor, got {kind(bias)} (a boolean one is a mask)")
    _check_broadcast("bias", bias, shape, device)


def check_count(name: str, count: int) -> None:
    """Check that the number called ``name`` is an integer of at least 0.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ValueError(f"{name}: expected an integer of at least 0, got {shown(count)}")


def check_dropout(dropout: float) -> None:
    """Check that ``dropout`` is a probability below 1.

    Raises:
        ValueError: it is not.
    """
    if not is_number(dropout) or not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout: expected a probability in [0, 1), got {shown(dropout)}")


def check_leading(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Check that the axes before the last two of ``tensor`` broadcast with those of ``other``.

    Raises:
        ValueError: they do not.
    """
    try:
        torch.broadcast_shapes(tensor.shape[:-2], other.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"{name}: expected leading axes that go with {other_name}'s {tuple(other.shape)}, got {tuple(tensor.shape)}"
        ) from None


def check_lengths(lengths: Tensor, batch: int) -> None:
    """Check that there is one length for each row of the batch; ``masks.length_mask`` says what lengths are.

    Raises:
        ValueError: there is not.
    """
    if lengths.shape != (batch,):
        raise ValueError(f"lengths: expected shape ({batch},), got {tuple(lengths.shape)}")


def check_mask(mask: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """Check that ``mask`` is boolean, on ``device``, and broadcasts to the scores' ``shape``.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise ValueError(f"mask: expected a boolean tensor (True = may attend), got {kind(mask)}")
    _check_broadcast("mask", mask, shape, device)


def check_key_mask(mask: Tensor) -> None:
    """A mask that hides the same keys from all heads and queries.

    Raises:
        ValueError: it differs between heads or queries.
    """
    if any(size != 1 for size in mask.shape[-3:-1]):
        raise ValueError(
            f"mask: expected one that hides keys from all heads and queries, (B, 1, 1, S), got {tuple(mask.shape)}"
        )


def check_mechanism(mechanism: object) -> None:
    """Check that ``mechanism`` can be called, and is not the class of one.

    Raises:
        ValueError: it cannot, or is.
    """
    if isinstance(mechanism, type):
        raise ValueError(f"mechanism: expected a made one, as {mechanism.__name__}(), got the class itself")
    if not callable(mechanism):
        raise ValueError(f"mechanism: expected a callable of the contract, got {kind(mechanism)}")


def check_factory(name: str, factory: object) -> None:
    """Check that ``factory`` is called to make modules, and is not one of them.

    Raises:
        ValueError: it is one, or cannot be called.
    """
    if not callable(factory) or isinstance(factory, nn.Module):
        raise ValueError(f"{name}: expected a function that makes one, got {kind(factory)}")


def check_scale(scale: float | None) -> None:
    """Check that ``scale`` is a finite number or None.

    Raises:
        ValueError: it is not.
    """
    if scale is not None and not (is_number(scale) and math.isfinite(scale)):
        raise ValueError(f"scale: expected a finite number or None, got {shown(scale)}")


def check_size(name: str, size: int) -> None:
    """Check that the size called ``name`` is an integer of at least 1.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"{name}: expected an integer of at least 1, got {shown(size)}")


def is_number(value: object) -> bool:
    """Whether this is a number, Python's or NumPy's: not True or False, no text, no tensor."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_vectors(name: str, x: Tensor, size: int, weight: Tensor) -> None:
    """Check that ``x`` is floating, ``(batch, length, size)``, on the device and (but under autocast) of the dtype of
    ``weight``.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(x, Tensor) or x.dim() != 3 or not x.dtype.is_floating_point or x.shape[2] != size:
        raise ValueError(f"{name}: expected a floating tensor of shape (batch, length, {size}), got {kind(x)}")
    if x.device != weight.device:
        raise ValueError(f"{name}: expected device {weight.device}, the weights', got {x.device}")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"{name}: expected dtype {weight.dtype}, the weights', got {x.dtype}")


def kind(value: object) -> str:
    """What came, for an error message: a tensor's dtype and shape, or the type of anything else."""
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__


def shown(value: object) -> str:
    """What came, for an error message, if it is not a tensor: in one line, and cut where it is long."""
    return kind(value) if isinstance(value, Tensor) else _SHORT.repr(value).replace("\n", " ")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def _check_broadcast(name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    if tensor.device != device:
        raise ValueError(f"{name}: expected device {device}, as the rest, got {tensor.device}")
    fits = tensor.dim() <= len(shape) and all(
        have in (1, want) for have, want in zip(reversed(tensor.shape), reversed(shape), strict=False)
    )
    if not fits:
        raise ValueError(f"{name}: expected a shape that broadcasts to {shape}, got {tuple(tensor.shape)}")


def check_integers(name: str, numbers: Tensor, *, axes: int) -> None:
    """Check that ``numbers`` are an integer tensor of so many axes.

    Raises:
        ValueError: they are not.
    """
    if not isinstance(numbers, Tensor) or numbers.dtype not in INTEGERS or numbers.dim() != axes:
        raise ValueError(f"{name}: expected an integer tensor of {axes} axes, got {kind(numbers)}")


def check_tokens(name: str, tokens: Tensor, vocab_size: int, *, axes: int, batch: int | None = None) -> None:
    """Token ids with so many axes, each in the vocabulary; of a batch of this size, where one is given.

    Raises:
        ValueError: they are not.
    """
    if not isinstance(tokens, Tensor) or tokens.dtype not in (torch.int64, torch.int32) or tokens.dim() != axes:
        raise ValueError(f"{name}: expected an integer tensor with {axes} axes, got {kind(tokens)}")
    if tokens.numel() == 0:
        raise ValueError(f"{name}: expected at least one token, got shape {tuple(tokens.shape)}")
    if batch is not None and tokens.shape[0] != batch:
        raise ValueError(f"{name}: expected a batch of {batch}, as the source's, got {tokens.shape[0]}")
    # On a GPU this would wait for the device at every step, and the embedding's own check speaks there.
    if tokens.device.type == "cpu":
        low, high = (int(x) for x in torch.aminmax(tokens))
        if low < 0 or high >= vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"{name}: expected token ids from 0 to {vocab_size - 1}, got {wrong}")
