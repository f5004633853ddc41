"""What Hypothesis draws: calls of the attention contract, in every shape, layout, mask and bias that it allows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

LAYOUTS = ("contiguous", "heads last", "every second", "columns", "one row for all", "one token for all", "offset")
HALVES = (torch.bfloat16, torch.float16)


def examples(number: int):
    """Settings of a property test: the same draws on every machine, and no clock."""
    return settings(max_examples=number, derandomize=True, deadline=None, database=None)


@dataclass(frozen=True)
class Call:
    """The arguments of one call, and by how much its queries and keys were scaled."""

    q: Tensor
    k: Tensor
    v: Tensor
    options: dict[str, Any]
    spread: float

    @property
    def tensors(self) -> list[Tensor]:
        return [self.q, self.k, self.v]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """B, H, T, S."""
        return (*self.q.shape[:3], self.k.shape[2])

    def on(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> "Call":
        """The same call on other tensors, some options changed."""
        return replace(self, q=q, k=q if self.k is self.q else k, v=v, options=self.options | options)

    def to(self, dtype: torch.dtype) -> "Call":
        return self.on(*(x.detach().to(dtype) for x in self.tensors))

    def part(self, name: str, *cut: slice) -> Tensor | None:
        """What a mask or a bias has for some rows, heads, queries, keys; None where there is none."""
        x = self.options.get(name)
        return None if x is None else x.broadcast_to(self.shape)[cut]

    def allowed(self) -> Tensor:
        """Which keys each query may attend to, ``(B, H, T, S)``, by mask, bias and ``causal``."""
        found = torch.ones(self.shape, dtype=torch.bool)
        mask, bias = self.options.get("mask"), self.options.get("bias")
        if mask is not None:
            found = found & mask
        if bias is not None:
            found = found & (bias != -math.inf)
        if self.options.get("causal"):
            queries, keys = self.shape[2:]
            found = found & (torch.arange(keys) <= torch.arange(queries)[:, None] + keys - queries)
        return found


def normal(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=random)


@st.composite
def laid_out(
    draw, shape: Sequence[int], dtype: torch.dtype, spread: float = 1.0, layouts: Sequence[str] = LAYOUTS
) -> Tensor:
    """A tensor of this shape ``(B, H, T, D)`` whose entries lie in memory in one of ``layouts``."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16), label="seed"))
    layout = draw(st.sampled_from(layouts), label="layout")
    batch, heads, length, size = shape
    if layout == "heads last":
        return (spread * normal(random, batch, length, heads, size)).to(dtype).transpose(1, 2)
    if layout == "every second":
        return (spread * normal(random, batch, heads, 2 * length, size)).to(dtype)[:, :, ::2]
    if layout == "columns":
        return (spread * normal(random, batch, heads, size, length)).to(dtype).mT
    if layout == "one row for all":
        return (spread * normal(random, 1, heads, length, size)).to(dtype).expand(*shape)
    if layout == "one token for all":
        return (spread * normal(random, batch, heads, 1, size)).to(dtype).expand(*shape)
    if layout == "offset":
        return (spread * normal(random, batch + 1, heads, length + 3, size + 2)).to(dtype)[1:, :, 3:, 1:-1]
    return (spread * normal(random, *shape)).to(dtype)


@st.composite
def broadcastable(draw, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts to this one: axes of size 1, leading ones left out."""
    sizes = [draw(st.sampled_from([1, size])) for size in shape]
    return tuple(sizes[draw(st.integers(0, len(sizes) - 1)) :])


@st.composite
def masks(draw, shape: tuple[int, int, int, int], *, per_key: bool) -> Tensor:
    """A mask: any that broadcasts, or one entry a key; from nothing allowed to all; perhaps a stride-0 view."""
    batch, _, _, keys = shape
    size = draw(st.sampled_from([(batch, 1, 1, keys), (keys,), (1, keys)]) if per_key else broadcastable(shape))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    mask = torch.rand(size, generator=random) < draw(st.sampled_from([0.0, 0.3, 0.8, 1.0]), label="share allowed")
    return mask if per_key or draw(st.booleans()) else mask.expand(shape)


@st.composite
def biases(draw, shape: tuple[int, int, int, int], dtype: torch.dtype) -> Tensor:
    """A bias that broadcasts, some of its entries −inf; in the dtype of q or in float32."""
    size = draw(broadcastable(shape))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    bias = draw(st.sampled_from([0.1, 2.0])) * torch.randn(size, generator=random)
    hidden = torch.rand(size, generator=random) < draw(st.sampled_from([0.0, 0.3, 1.0]), label="share of −inf")
    return bias.masked_fill(hidden, -math.inf).to(draw(st.sampled_from([dtype, torch.float32])))


@st.composite
def calls(
    draw,
    *,
    dtype: torch.dtype = torch.float32,
    least: int = 0,
    mask: str = "any",
    bias: bool = True,
    causal: bool = True,
    scale: bool = True,
    shared: bool = False,
    ties: bool = True,
    spreads: tuple[float, ...] = (0.1, 1.0, 3.0),
) -> Call:
    """A call; lengths from ``least`` to 8; what a mechanism does not take is left out.

    Without ``ties``, no query gives all keys the same score.
    """
    batch, groups, group = (draw(st.integers(1, most), label=name) for name, most in (("B", 3), ("G", 2), ("H/G", 3)))
    lengths = st.integers(least, 8)
    queries, size, value_size = draw(lengths, label="T"), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    keys = queries if shared else draw(lengths, label="S")
    spread = draw(st.sampled_from(spreads), label="spread")
    heads = groups * group
    q = draw(laid_out((batch, heads, queries, size), dtype, spread))
    layouts = LAYOUTS if ties else tuple(x for x in LAYOUTS if x != "one token for all")
    k = q if shared else draw(laid_out((batch, groups, keys, size), dtype, spread, layouts))
    v = draw(laid_out((batch, heads if shared else groups, keys, value_size), dtype))
    shape, options = (batch, heads, queries, keys), {}
    if draw(st.booleans(), label="mask"):
        options["mask"] = draw(masks(shape, per_key=mask == "keys"))
    if bias and draw(st.booleans(), label="bias"):
        options["bias"] = draw(biases(shape, dtype))
    if causal:
        options["causal"] = draw(st.booleans(), label="causal")
    if scale:
        options["scale"] = draw(st.sampled_from([None, 0.3, 1, -0.7, 0.0][: 5 if ties else 4]), label="scale")
    return Call(q, k, v, options, spread)
