"""The attention contract in code: ``contract`` checks a call and hands back what every mechanism starts from.

Below ``Mechanism``, the base of those that are modules, stand the checks that the rest of the package shares. Each of
them raises a ``ValueError`` that names the argument, what was expected, and what came.
"""

import math
import reprlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

INTEGERS = (torch.int64, torch.int32)  # in smaller ones, a length less 1 may wrap around


class Call(NamedTuple):
    """A call that keeps the contract, with its scale filled in: q ``(B, H, T, D)``, k and v ``(B, G, S, ·)``."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    bias: Tensor | None
    causal: bool
    scale: float

    @property
    def visible(self) -> Tensor | None:
        """The mask with the causal mask folded in; None where every query sees every key."""
        if not self.causal:
            return self.mask
        queries, keys = self.q.shape[2], self.k.shape[2]
        visible = torch.ones(queries, keys, dtype=torch.bool, device=self.q.device).tril(keys - queries)
        return visible if self.mask is None else visible & self.mask

    def refuse_bias_gradient(self) -> None:
        """For mechanisms that have no gradient to give to a bias."""
        if self.bias is not None and self.bias.requires_grad:
            raise ValueError(
                "bias: expected one without gradient, got requires_grad=True; attn_core.attention gives one"
            )

    def refuse_pairs(self) -> None:
        """For mechanisms that take no bias, and only a mask that hides the same keys from all heads and queries."""
        if self.bias is not None:
            raise ValueError("bias: expected None, since not every pair has a score to add it to, got one")
        if self.mask is not None and any(size != 1 for size in self.mask.shape[-3:-1]):
            expected = "one that hides keys from all heads and queries, (B, 1, 1, S)"
            raise ValueError(f"mask: expected {expected}, got {tuple(self.mask.shape)}")

    def repeat_kv(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v in the accumulation dtype, each key-value head repeated for the query heads that read it."""
        group = self.q.shape[1] // self.k.shape[1]
        q, k, v = (x.to(accum_dtype(self.q)) for x in self[:3])
        return (q, k, v) if group == 1 else (q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1))

    def group_by_kv_head(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """q, mask and bias with an axis for the key-value heads: ``(B, G, H / G, T, ·)``; views."""
        groups = self.k.shape[1]
        return self.q.unflatten(1, (groups, -1)), *(group_by_kv_head(x, groups) for x in (self.mask, self.bias))


def contract(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Call:
    """Check a mechanism's arguments against the contract in ``attn_core.__doc__``."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or x.dim() != 4 or not x.dtype.is_floating_point:
            raise ValueError(f"{name}: expected a floating tensor (batch, heads, length, size), got {kind(x)}")
        if x.dtype.itemsize < 2 or x.layout != torch.strided or x.is_nested:
            found = f"{x.dtype} in layout {x.layout}" + ", nested" * x.is_nested
            raise ValueError(f"{name}: expected a dense tensor of at least 16 bits a number, got {found}")
        if x.dtype != q.dtype or x.device != q.device:
            raise ValueError(f"{name}: expected q's {q.dtype} on {q.device}, got {x.dtype} on {x.device}")
    batch, heads, queries, size = q.shape
    key_heads, keys = k.shape[1], k.shape[2]
    if k.shape[0] != batch or k.shape[3] != size:
        raise ValueError(f"k: expected shape ({batch}, G, S, {size}) to go with q, got {tuple(k.shape)}")
    if heads == 0 or key_heads == 0 or heads % key_heads:
        raise ValueError(f"k: expected a number of heads that divides q's {heads}, got {key_heads}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v: expected shape {(*k.shape[:3], 'Dv')} to go with k, got {tuple(v.shape)}")
    if size == 0:
        raise ValueError("q: expected a head size of at least 1, got 0")
    if mask is not None:
        check_mask(mask, (batch, heads, queries, keys), q.device)
    if bias is not None:
        check_bias(bias, (batch, heads, queries, keys), q.device)
    check_flags(causal=causal)
    check_scale(scale)
    return Call(q, k, v, mask, bias, causal, 1.0 / math.sqrt(size) if scale is None else float(scale))


def settings(module: nn.Module) -> str:
    """What ``print`` shows of a module, as its ``extra_repr``: the numbers that it was made with."""
    numbers = {name: x for name, x in vars(module).items() if isinstance(x, int | float) and name != "training"}
    return ", ".join(f"{name}={x}" for name, x in numbers.items())


class Mechanism(nn.Module):
    """A mechanism as a module. A subclass has ``attend`` or, where it has weights to show, ``attend_with_weights``."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """The output ``(B, H, T, Dv)``; ``options`` are ``mask``, ``bias``, ``causal`` and ``scale``."""
        return self.attend(contract(q, k, v, **options))

    def with_weights(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        """The output and the attention weights ``(B, H, T, S)``."""
        return self.attend_with_weights(contract(q, k, v, **options))

    def attend(self, call: Call) -> Tensor:
        """The output of a checked call."""
        return self.attend_with_weights(call)[0]

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """The output and the weights of a checked call."""
        raise ValueError(f"mechanism: expected one that has weights to capture, got {kind(self)}")

    extra_repr = settings


def with_weights(mechanism: Any, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The output and the weights of any callable of the contract, or a ``ValueError`` if it has no weights to show."""
    if not hasattr(mechanism, "with_weights"):
        raise ValueError(f"mechanism: expected one that has weights to capture, got {kind(mechanism)}")
    out, weights = mechanism.with_weights(q, k, v, **options)
    return out, weights


def accum_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which sums over ``x`` are kept: float32, or float64 where ``x`` has it."""
    return torch.promote_types(x.dtype, torch.float32)


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast does not take products on the device of ``x`` back to half precision."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def group_by_kv_head(x: Tensor | None, groups: int) -> Tensor | None:
    """A mask or bias with an axis for key-value heads: a view that broadcasts to ``(B, groups, H/groups, T, S)``."""
    if x is None:
        return None
    x = four_axes(x)
    return x.unflatten(1, (1 if x.shape[1] == 1 else groups, -1))


def four_axes(x: Tensor) -> Tensor:
    """``x`` with axes of size 1 put in front until there are four."""
    return x.reshape((1,) * (4 - x.dim()) + x.shape)


def check_bias(bias: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """``bias`` is floating, on ``device``, and broadcasts to the scores' ``shape``."""
    if not isinstance(bias, Tensor) or not bias.dtype.is_floating_point:
        raise ValueError(f"bias: expected a floating tensor, got {kind(bias)} (a boolean one is a mask)")
    _check_broadcast("bias", bias, shape, device)


def check_mask(mask: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """``mask`` is boolean, on ``device``, and broadcasts to the scores' ``shape``."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise ValueError(f"mask: expected a boolean tensor (True = may attend), got {kind(mask)}")
    _check_broadcast("mask", mask, shape, device)


def _check_broadcast(name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    if tensor.device != device:
        raise ValueError(f"{name}: expected device {device}, as the rest, got {tensor.device}")
    sizes = zip(reversed(tensor.shape), reversed(shape), strict=False)
    if tensor.dim() > len(shape) or any(size != 1 and size != full for size, full in sizes):
        raise ValueError(f"{name}: expected a shape that broadcasts to {shape}, got {tuple(tensor.shape)}")


def check_scale(scale: float | None) -> None:
    """``scale`` is a finite number or None."""
    if scale is not None and not (is_number(scale) and -math.inf < scale < math.inf):
        raise ValueError(f"scale: expected a finite number or None, got {shown(scale)}")


def check_mechanism(mechanism: object) -> None:
    """``mechanism`` can be called, and is not the class of one."""
    if isinstance(mechanism, type):
        raise ValueError(f"mechanism: expected a made one, as {mechanism.__name__}(), got the class itself")
    if not callable(mechanism):
        raise ValueError(f"mechanism: expected a callable of the contract, got {kind(mechanism)}")


def check_factory(name: str, factory: object) -> None:
    """``factory`` is called to make modules, and is not one of them."""
    if not callable(factory) or isinstance(factory, nn.Module):
        raise ValueError(f"{name}: expected a function that makes one, got {kind(factory)}")


def check_integer(name: str, value: int, *, at_least: int = 1, at_most: int | None = None) -> None:
    """``value`` is an integer within these bounds."""
    integer = isinstance(value, int | torch.SymInt) and not isinstance(value, bool)
    if not integer or value < at_least or (at_most is not None and value > at_most):
        bounds = f"of at least {at_least}" if at_most is None else f"from {at_least} to {at_most}"
        raise ValueError(f"{name}: expected an integer {bounds}, got {shown(value)}")


def check_flags(**flags: bool) -> None:
    """Each is True or False: a text such as "no" would count as True."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name}: expected True or False, got {shown(value)}")


def check_number(name: str, value: float, *, at_least: float | None = None, above: float = 0) -> None:
    """``value`` is a finite number: ``at_least`` so great or, without that, ``above`` another."""
    bounds = f"above {above}" if at_least is None else f"of at least {at_least}"
    if not is_number(value) or not value < math.inf or (value <= above if at_least is None else value < at_least):
        raise ValueError(f"{name}: expected a finite number {bounds}, got {shown(value)}")


def token_ids(name: str, ids: Sequence[int] | Tensor, vocab_size: int | None = None) -> tuple[int, ...]:
    """These ids, of a sequence, a tensor or an array of one axis; of the vocabulary, where its size is given."""
    listed = ids.tolist() if hasattr(ids, "tolist") else ids
    if not isinstance(listed, Sequence) or isinstance(listed, str | bytes | bytearray):
        raise ValueError(f"{name}: expected a sequence of token ids, got {kind(ids)}")
    for token in listed:
        integer = isinstance(token, Integral) and not isinstance(token, bool)
        if not integer or token < 0 or (vocab_size is not None and token >= vocab_size):
            expected = "an integer of at least 0" if vocab_size is None else f"token ids from 0 to {vocab_size - 1}"
            raise ValueError(f"{name}: expected {expected}, got {shown(token)}")
    return tuple(int(token) for token in listed)


def check_soft_cap(soft_cap: float | None) -> None:
    """``soft_cap`` is None or a finite number above 0."""
    if soft_cap is not None:
        check_number("soft_cap", soft_cap)


def check_dropout(dropout: float) -> None:
    """``dropout`` is a probability below 1."""
    check_share("dropout", dropout, "a probability")


def check_share(name: str, share: float, what: str = "a share") -> None:
    """``share`` is at least 0 and below 1."""
    if not is_number(share) or not 0.0 <= share < 1.0:
        raise ValueError(f"{name}: expected {what} in [0, 1), got {shown(share)}")


def check_lengths(lengths: Tensor, batch: int, full: str | None = None) -> None:
    """There is one length for each row of the batch; if ``full`` names what may not be empty, of at least 1."""
    if lengths.shape != (batch,):
        raise ValueError(f"lengths: expected shape ({batch},), got {tuple(lengths.shape)}")
    if full is not None and not lengths.is_meta and not traced() and int(lengths.min()) < 1:
        raise ValueError(f"lengths: expected at least one token in each {full}, got {shown(lengths.tolist())}")


def check_integers(name: str, numbers: Tensor, *, axes: int) -> None:
    """``numbers`` are an integer tensor of so many axes."""
    if not isinstance(numbers, Tensor) or numbers.dtype not in INTEGERS or numbers.dim() != axes:
        raise ValueError(f"{name}: expected an int64 or int32 tensor of {axes} axes, got {kind(numbers)}")


def check_tokens(name: str, tokens: Tensor, vocab_size: int, *, axes: int, batch: int | None = None) -> None:
    """``tokens`` are ids of the vocabulary with so many axes; of a batch of this size, where one is given."""
    check_integers(name, tokens, axes=axes)
    if tokens.numel() == 0:
        raise ValueError(f"{name}: expected at least one token, got shape {tuple(tokens.shape)}")
    if batch is not None and tokens.shape[0] != batch:
        raise ValueError(f"{name}: expected a batch of {batch}, as the source's, got {tokens.shape[0]}")
    check_ids(name, tokens, vocab_size)


def check_ids(name: str, ids: Tensor, vocab_size: int) -> None:
    """``ids`` lie within the vocabulary, where asking does not wait for a device; elsewhere PyTorch's check speaks."""
    if can_read(ids) and ids.numel():
        low, high = (int(x) for x in torch.aminmax(ids))
        if low < 0 or high >= vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"{name}: expected token ids from 0 to {vocab_size - 1}, got {wrong}")


def can_read(x: Tensor) -> bool:
    """Whether a check may read the numbers in ``x``: not on a GPU, which it would wait for, nor in a traced call."""
    return x.device.type == "cpu" and not traced()


def traced() -> bool:
    """Whether PyTorch compiles or transforms this call, so that there are no numbers to read."""
    return torch.compiler.is_compiling() or transformed()


def transformed(*tensors: Tensor | None) -> bool:
    """Whether ``torch.func`` is at work, where no entry can be read, or a tensor has a tangent of forward mode."""
    if torch._C._are_functorch_transforms_active():
        return True
    dual = forward_ad._current_level >= 0  # asked first: unpacking every tensor of every call would cost microseconds
    return dual and any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors)


def is_number(value: object) -> bool:
    """Whether this is a number, Python's or NumPy's: not True or False, no text, no tensor."""
    return isinstance(value, Real) and not isinstance(value, bool)


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
