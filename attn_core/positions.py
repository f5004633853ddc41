"""Positions: encodings that are added to embeddings, and those that act inside the scores of an attention."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attn_core.contract import (
    INTEGERS,
    accum_dtype,
    can_read,
    check_integer,
    check_number,
    kind,
    settings,
    shown,
    traced,
)


class RelativePositions(nn.Module):
    """Positions that act inside the scores, for ``MultiHeadAttention``. A subclass overrides one of the two methods."""

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys ``(B, H, n, D)`` at ``positions (n,)`` or ``(B, n)``, rotated by them."""
        return x

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """What to add to the scores, ``(H, T, S)`` or ``(B, H, T, S)``; None if nothing."""
        return None


def sinusoidal(length: int, dim: int, *, base: float = 10_000.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Sinusoids of falling frequency: column 2j is sin(i / base^(2j/dim)) at position i, column 2j+1 its cosine.

    Shapes: returns ``(length, dim)``. An odd ``dim`` ends with a sine whose cosine is left out. The angles are exact to
    float64 at any position.

    Source: Vaswani et al. 2017, section 3.5.
    """
    check_integer("length", length, at_least=0)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ValueError(f"dtype: expected a floating one, got {dtype!r}")
    return _encode(torch.arange(length), dim, base).to(dtype)


class Sinusoidal(nn.Module):
    """Adds ``sinusoidal`` encodings to token vectors.

    Nothing is stored: the encodings are computed in each call, for any length.

    Source: Vaswani et al. 2017, section 3.5.
    """

    def __init__(self, dim: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        check_integer("dim", dim)
        check_number("base", base)
        self.dim, self.base = dim, base

    def forward(self, x: Tensor, offset: int | Tensor = 0) -> Tensor:
        """``x (B, T, dim)`` plus the encodings of its positions: the same shape.

        ``offset`` is the number of positions before the first; an integer tensor ``(B,)`` gives each row its own.
        """
        _check_vectors(x, self.dim, offset)
        encodings = _encode(following(offset, x), self.dim, self.base)
        return (x + encodings.to(accum_dtype(x))).to(x.dtype)

    extra_repr = settings


class Learned(nn.Module):
    """Adds one learned vector for each position below ``max_length``: trained like any other weight.

    Source: Gehring et al. 2017, section 3.1. The vectors start at standard deviation 0.02, as in Devlin et al. 2018.
    """

    def __init__(self, max_length: int, dim: int) -> None:
        super().__init__()
        check_integer("max_length", max_length)
        check_integer("dim", dim)
        self.max_length, self.dim = max_length, dim
        self.weight = nn.Parameter(torch.empty(max_length, dim))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor, offset: int | Tensor = 0) -> Tensor:
        """``x (B, T, dim)`` plus the vectors of its positions; ``offset`` as in ``Sinusoidal``."""
        _check_vectors(x, self.dim, offset)
        if not (isinstance(offset, Tensor) and traced()):
            offsets = offset.tolist() if isinstance(offset, Tensor) else [offset]
            check_integer("offset", min(offsets, default=0), at_least=0)  # a negative one would count from the end
            end = max(offsets, default=0) + x.shape[1]
            if end > self.max_length:
                raise ValueError(f"x: expected positions below max_length {self.max_length}, got position {end - 1}")
        positions = following(offset, x) if isinstance(offset, Tensor) else slice(offset, end)
        return (x + self.weight[positions]).to(x.dtype)

    extra_repr = settings


class Rotary(RelativePositions):
    """Rotates queries and keys by their positions, so that each product depends on the distance alone.

    Entries 2j and 2j+1 of a head form a plane, which position i rotates by the angle i / base^(2j/rotary_dim). Only the
    first ``rotary_dim`` entries are rotated, by default all. Values are left as they are.

    ``scaling`` extends the context of a trained model: a function from the frequencies ``(rotary_dim / 2,)``, fastest
    first, to others, such as ``Interpolation``, ``NTKAware`` or ``YaRN``. If it has a ``magnitude``, the rotated
    entries are multiplied by it.

    Source: Su et al. 2021, eq. 15 and 34; Black et al. 2022, section 2.1.1 (a part of each head).
    """

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        rotary_dim: int | None = None,
        scaling: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        _check_even("head_dim", head_dim)
        rotary_dim = head_dim if rotary_dim is None else rotary_dim
        _check_even("rotary_dim", rotary_dim)
        check_integer("rotary_dim", rotary_dim, at_most=head_dim)
        check_number("base", base)
        if scaling is not None and (not callable(scaling) or isinstance(scaling, type)):
            raise ValueError(f"scaling: expected a function of the frequencies, as YaRN(2, 4096), got {shown(scaling)}")
        self.head_dim, self.rotary_dim, self.base, self.scaling = head_dim, rotary_dim, base, scaling

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys ``x (B, H, n, head_dim)`` rotated by integers ``positions (n,)`` or ``(B, n)``."""
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() != 4 or x.shape[3] != self.head_dim:
            raise ValueError(f"x: expected a floating tensor (batch, heads, length, {self.head_dim}), got {kind(x)}")
        _check_positions("positions", positions, x.device)
        if positions.shape not in (x.shape[2:3], (x.shape[0], x.shape[2])):
            expected = f"({x.shape[2]},) or ({x.shape[0]}, {x.shape[2]})"
            raise ValueError(f"positions: expected shape {expected}, to go with x, got {tuple(positions.shape)}")
        if not traced() and x.device.type != "mps":
            return turned(x, self.turns(positions, accum_dtype(x)))
        # Real numbers, where they are fused, or complex ones are not at home.
        angles, magnitude = self._angles(positions)
        even, odd = x[..., : self.rotary_dim].to(accum_dtype(x)).unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = ((magnitude * part).to(even.dtype) for part in (angles.cos(), angles.sin()))
        rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)
        return torch.cat((rotated, x[..., self.rotary_dim :]), -1)

    def turns(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Complex numbers that rotate the planes, ``(n, rotary_dim / 2)``, or ``(B, 1, n, …)`` for all heads."""
        angles, magnitude = self._angles(positions)
        return torch.polar(torch.full_like(angles, magnitude), angles).to(dtype.to_complex())

    def _angles(self, positions: Tensor) -> tuple[Tensor, float]:
        """Radians ``(n, rotary_dim / 2)``, or ``(B, 1, n, rotary_dim / 2)`` for all heads, and the magnitude."""
        angles = _angles(positions, self.rotary_dim, self.base, self.scaling)
        return angles if positions.dim() == 1 else angles[:, None], getattr(self.scaling, "magnitude", 1.0)

    extra_repr = settings


@dataclass(frozen=True)
class Interpolation:
    """Rotary frequencies divided by ``factor``, the new length over that of training: position interpolation.

    Source: Chen et al. 2023, eq. 4.
    """

    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)

    def __call__(self, frequencies: Tensor) -> Tensor:
        return frequencies / self.factor


@dataclass(frozen=True)
class NTKAware(Interpolation):
    """Rotary frequencies of a higher base: the slowest is divided by ``factor``, the fastest is left as it is.

    Source: Peng et al. 2024, section 3.1.
    """

    def __call__(self, frequencies: Tensor) -> Tensor:
        count = len(frequencies)
        shares = torch.arange(count, dtype=frequencies.dtype, device=frequencies.device) / max(count - 1, 1)
        return frequencies * self.factor**-shares


@dataclass(frozen=True)
class YaRN:
    """Rotary frequencies divided by ``factor`` where a pair makes fewer than ``slow`` turns within ``trained`` tokens.

    Those of at least ``fast`` turns stay as they are; between the two, the divisor changes gradually. Queries and keys
    are multiplied by ``magnitude``, by default 0.1 ln(factor) + 1. The change is linear in the turns, as in the paper;
    in the authors' program, and in most checkpoints that name YaRN, it is linear in the number of the pair. Llama 3.1
    has ``YaRN(8, 8192, fast=4, magnitude=1)``.

    Source: Peng et al. 2024, section 3.2 and eq. 22; Grattafiori et al. 2024 (Llama 3).
    """

    factor: float
    trained: int
    slow: float = 1.0
    fast: float = 32.0
    magnitude: float | None = None

    def __post_init__(self) -> None:
        check_number("factor", self.factor, at_least=1)
        check_integer("trained", self.trained)
        check_number("slow", self.slow, at_least=0)
        check_number("fast", self.fast, above=self.slow)
        if self.magnitude is None:
            object.__setattr__(self, "magnitude", 0.1 * math.log(self.factor) + 1)
        else:
            check_number("magnitude", self.magnitude)

    def __call__(self, frequencies: Tensor) -> Tensor:
        turns = self.trained * frequencies / (2 * math.pi)
        kept = ((turns - self.slow) / (self.fast - self.slow)).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


class ALiBi(RelativePositions):
    """Subtracts from each score the distance between query and key, times a slope of the head.

    The slopes are 2^(−8h/H) for heads h = 1 to H where H is a power of two. Otherwise the heads past the next lower
    power of two take every other slope of the next higher one. Nothing is learned.

    Source: Press et al. 2022, section 3; for other numbers of heads, the authors' published code.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        check_integer("num_heads", num_heads)
        self.num_heads = num_heads
        below = 2 ** (num_heads.bit_length() - 1)
        more = [2 ** (-4 * (2 * h + 1) / below) for h in range(num_heads - below)]
        self.slopes = [*(2 ** (-8 * (h + 1) / below) for h in range(below)), *more]

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """−slope · |i − j|, float32: ``(H, T, S)``, or ``(B, H, T, S)`` if positions are ``(B, T)`` or ``(B, S)``."""
        _check_positions("query_positions", query_positions)
        _check_positions("key_positions", key_positions, query_positions.device)
        rows = {len(x) for x in (query_positions, key_positions) if x.dim() == 2} - {1}
        if len(rows) > 1:
            raise ValueError(f"key_positions: expected {len(query_positions)} rows, got {kind(key_positions)}")
        # Differences of small integers, such as bytes, would wrap around.
        distances = (query_positions.long()[..., :, None] - key_positions.long()[..., None, :]).abs().float()
        slopes = torch.tensor(self.slopes, device=distances.device)
        return -slopes[:, None, None] * (distances if distances.dim() == 2 else distances[:, None])

    extra_repr = settings


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """``x (B, H, n, D)`` with its first entries, as complex numbers, multiplied by ``turns`` of ``Rotary``."""
    size = 2 * turns.shape[-1]
    pairs = (x if size == x.shape[3] else x[..., :size]).to(turns.dtype.to_real()).view(*x.shape[:3], size // 2, 2)
    steps = () if pairs.is_contiguous() else pairs.stride()[:-1]  # complex numbers lie side by side, at even places
    if pairs.stride(-1) != 1 or any(step % 2 for step in (pairs.storage_offset(), *steps)):
        pairs = pairs.clone(memory_format=torch.contiguous_format)
    rotated = torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(3).to(x.dtype)
    return rotated if size == x.shape[3] else torch.cat((rotated, x[..., size:]), -1)


def following(before: int | Tensor, x: Tensor) -> Tensor:
    """The positions ``(n,)`` of vectors ``x (…, n, D)`` after ``before`` others; ``(B, n)`` after ``before (B,)``."""
    positions = torch.arange(x.shape[-2], device=x.device)
    return positions + (before.to(x.device)[:, None] if isinstance(before, Tensor) else before)


def _encode(positions: Tensor, dim: int, base: float) -> Tensor:
    """Encodings ``(…, dim)`` of ``positions (…)``, as precise as the device allows."""
    check_integer("dim", dim)
    angles = _angles(positions, dim, base)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :dim]


def _angles(positions: Tensor, dim: int, base: float, scaling: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Radians ``(…, ceil(dim / 2))`` of ``positions (…)``."""
    check_number("base", base)
    # Float32 has seven digits: at position 100,000, only two of them would be decimals of the angle.
    dtype = torch.float32 if positions.device.type == "mps" else torch.float64
    frequencies = torch.arange(0, dim, 2, dtype=dtype, device=positions.device).mul_(-math.log(base) / dim).exp_()
    if scaling is not None:
        scaled, count = scaling(frequencies), len(frequencies)
        if not isinstance(scaled, Tensor) or scaled.shape != frequencies.shape:
            raise ValueError(f"scaling: expected a function that returns {count} frequencies, got {kind(scaled)}")
        frequencies = scaled
    return positions[..., None].to(dtype) * frequencies


def _check_vectors(x: Tensor, dim: int, offset: int | Tensor) -> None:
    if not isinstance(x, Tensor) or x.dim() != 3 or not x.dtype.is_floating_point or x.shape[2] != dim:
        raise ValueError(f"x: expected a floating tensor of shape (batch, length, {dim}), got {kind(x)}")
    if isinstance(offset, Tensor):
        if offset.dtype not in INTEGERS or offset.shape != x.shape[:1]:
            raise ValueError(f"offset: expected an int64 or int32 tensor of shape ({x.shape[0]},), got {kind(offset)}")
        if can_read(offset):
            check_integer("offset", min(offset.tolist(), default=0), at_least=0)
    else:
        check_integer("offset", offset, at_least=0)


def _check_positions(name: str, positions: Tensor, device: torch.device | None = None) -> None:
    is_tensor = isinstance(positions, Tensor) and positions.dim() in (1, 2)
    if not is_tensor or positions.dtype == torch.bool or positions.is_floating_point() or positions.is_complex():
        raise ValueError(f"{name}: expected an integer tensor of shape (n,) or (B, n), got {kind(positions)}")
    if device is not None and positions.device != device:
        raise ValueError(f"{name}: expected device {device}, as the rest, got {positions.device}")


def _check_even(name: str, size: int) -> None:
    check_integer(name, size)
    if size % 2:
        raise ValueError(f"{name}: expected an even size, since entries are rotated in pairs, got {size}")
