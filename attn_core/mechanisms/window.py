"""Sliding-window attention: each query meets the keys next to it, so time and memory grow linearly with the length.

A tile of neighbouring queries meets one slice of the keys, and the corners of the tile that lie outside the window are
masked. A tile holds whole rows of weights, so each row needs one softmax, which the backward pass computes again.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attn_core.contract import Call, Mechanism, accum_dtype, check_integer, contract, group_by_kv_head, without_autocast
from attn_core.mechanisms.dense import weigh

TILE = 128
"""Rows of a tile that one key-value head has: queries times heads of its group."""


def sliding_window_plain(q: Tensor, k: Tensor, v: Tensor, before: int, after: int) -> Tensor:
    """The idea in plain PyTorch: one query after another, each with a softmax over the keys of its own window.

    Shapes: the contract's, with as many key-value heads as heads, and no more queries than keys.

    Source: Beltagy et al. 2020, section 3.1.
    """
    rows = []
    for i in range(q.shape[2]):
        position = k.shape[2] - q.shape[2] + i
        window = slice(max(position - before, 0), position + after + 1)
        scores = q[:, :, i : i + 1] @ k[:, :, window].mT / math.sqrt(q.shape[3])
        rows.append(torch.softmax(scores, dim=-1) @ v[:, :, window])
    return torch.cat(rows, dim=2)


class SlidingWindow(Mechanism):
    """Softmax attention to the ``before`` keys before a query, its own, and the ``after`` keys after it.

    ``after`` is ``before`` by default: ``SlidingWindow(256)`` sees 256 keys on either side, 513 in all; a call with
    ``causal=True`` sees none after. With ``dilation`` d the window reaches d times as far and holds every d-th key.
    Query i of T stands at position S − T + i of the S keys, as in the contract's causal mask. In a cache whose rows
    differ in length it stands elsewhere, and so it does in cross-attention; the layers refuse both.

    Scores take memory for one tile, and the backward pass keeps only inputs and output; there is no second derivative.

    Raises:
        ValueError: if ``before`` or ``after`` is not an integer of at least 0, or ``dilation`` not one of at least 1;
            in use, if an argument breaks the contract, or ``bias`` requires a gradient.

    Source: Beltagy et al. 2020, section 3.1.
    """

    aligned_only = True
    """Whether a query's position among the keys is taken from T and S alone."""

    def __init__(self, before: int, after: int | None = None, *, dilation: int = 1) -> None:
        super().__init__()
        after = before if after is None else after
        check_integer("before", before, at_least=0)
        check_integer("after", after, at_least=0)
        check_integer("dilation", dilation)
        self.before, self.after, self.dilation = before, after, dilation

    def allowed(self, queries: int, keys: int, *, device: torch.device | str | None = None) -> Tensor:
        """The window as a mask ``(T, S)``, True where a query may attend: what dense attention needs to do the same."""
        positions = torch.arange(queries, device=device)[:, None] + (keys - queries)
        distance = torch.arange(keys, device=device) - positions
        near = (distance >= -self.before * self.dilation) & (distance <= self.after * self.dilation)
        return near & (distance % self.dilation == 0)

    def attend(self, call: Call) -> Tensor:
        """``sliding_window_attention`` with this module's window."""
        return sliding_window_attention(**call._asdict(), before=self.before, after=self.after, dilation=self.dilation)

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """The explicit path: dense attention under the window as a mask."""
        window = self.allowed(call.q.shape[2], call.k.shape[2], device=call.q.device)
        return weigh(call._replace(mask=window if call.mask is None else call.mask & window))


def sliding_window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    before: int,
    after: int,
    dilation: int = 1,
    *,
    global_k: Tensor | None = None,
    global_v: Tensor | None = None,
    global_mask: Tensor | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``SlidingWindow`` as a function, with N more keys that every query sees, in one softmax with those of its window.

    Shapes: the contract's (``attn_core.__doc__``); ``global_k (B, G, N, D)``, ``global_v (B, G, N, Dv)`` and
    ``global_mask`` broadcastable to ``(B, H, T, N)``, True = may attend; neither ``causal`` nor ``mask`` concerns
    them. Mask and bias are read tile by tile, in the shape that they have. Raises as ``SlidingWindow``.

    Source: Beltagy et al. 2020, section 3.1.
    """
    call = contract(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)
    call.refuse_bias_gradient()
    if (global_k is None) != (global_v is None):
        raise ValueError("global_v: expected both global_k and global_v or neither, got one of them")
    if global_k is None:
        global_k, global_v = k[:, :, :0], v[:, :, :0]
    grouped, mask, bias = call.group_by_kv_head()
    extras = mask, bias, group_by_kv_head(global_mask, k.shape[1])
    settings = before, 0 if causal else after, dilation, call.scale
    out: Tensor = _SlidingWindow.apply(grouped, k, v, global_k, global_v, *extras, *settings)
    return out.flatten(1, 2)


@dataclass(frozen=True)
class _Band:
    """One call: q ``(B, G, H/G, T, D)``; keys and values ``(B, G, S, n)``; the masks and the bias with five axes.

    The keys that a window with dilation d holds lie d apart, as do the queries that see them: these alone form a band
    without dilation.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    global_k: Tensor
    global_v: Tensor
    mask: Tensor | None
    bias: Tensor | None
    global_mask: Tensor | None
    before: int
    after: int
    dilation: int
    scale: float

    def tiles(self) -> Iterator[tuple[int, slice, slice]]:
        """Row of the batch, queries, and the keys that any of these sees; a tile has all heads."""
        batch, _, group, queries, _ = self.q.shape
        keys, step, many = self.k.shape[2], self.dilation, max(1, TILE // group)
        for b in range(batch):
            for first in range(min(step, queries)):
                alike = range(first, queries, step)
                for start in range(0, len(alike), many):
                    tile = alike[start : start + many]
                    low, end = self.reach(tile[0])[0], min(self.reach(tile[-1])[1] + 1, keys)
                    low = low if low >= 0 else low % step  # the first of these keys that exists
                    yield b, slice(tile[0], tile[-1] + 1, step), slice(low, max(low, end), step)

    def reach(self, query: int) -> tuple[int, int]:
        """The positions of the first and the last key of a query's window; there may be no such keys."""
        position = query + self.k.shape[2] - self.q.shape[3]
        return position - self.before * self.dilation, position + self.after * self.dilation

    def weights(self, b: int, queries: slice, keys: slice, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor | None]:
        """The weights ``(G, rows, N + keys)`` of a tile, global keys first; which rows are empty, if any can be."""
        shared = self.global_k.shape[2]
        scores = q @ k.mT
        tile = scores.view(*self.q[b, :, :, queries].shape[:3], -1)
        if self.global_mask is not None:
            tile[..., :shared].masked_fill_(~_part(self.global_mask, b, queries, slice(None)), -math.inf)
        near = tile[..., shared:]
        maybe_empty = self.bias is not None or self.q.shape[3] > self.k.shape[2]  # else each query sees its own key
        if self.bias is not None:
            near += _part(self.bias, b, queries, keys)
        if self.mask is not None:
            hidden = ~_part(self.mask, b, queries, keys)
            if hidden.any():  # most tiles meet no padding, and what hides it costs a third as much as the products
                near.masked_fill_(hidden, -math.inf)
                maybe_empty = True
        # Row r sees the columns from low + r to high + r: hide the two corners beyond.
        rows, columns = (torch.arange(n, device=q.device) for n in near.shape[2:])
        low, high = ((end - keys.start) // self.dilation for end in self.reach(queries.start))
        end, start = max(low + len(rows) - 1, 0), max(high + 1, 0)
        near[..., :end].masked_fill_(columns[:end] < rows[:, None] + low, -math.inf)
        near[..., start:].masked_fill_(columns[start:] > rows[:, None] + high, -math.inf)
        if not maybe_empty or scores.shape[2] == 0:
            return torch.softmax(scores, -1), None
        empty = scores.amax(-1, keepdim=True) == -math.inf
        return torch.softmax(scores, -1).masked_fill_(empty, 0.0), empty

    def queries(self, x: Tensor, b: int, queries: slice) -> Tensor:
        """What a tile has of ``x (B, G, H/G, T, n)``: ``(G, rows, n)``, the heads of a group one below the other."""
        return x[b, :, :, queries].to(accum_dtype(self.q)).flatten(1, 2)

    def keys(self, shared: Tensor, near: Tensor, b: int, keys: slice) -> Tensor:
        """The global keys or values and those of a slice: ``(G, N + keys, n)``."""
        part = near[b, :, keys]
        return (torch.cat((shared[b], part), 1) if shared.shape[2] else part).to(accum_dtype(self.q))

    def forward(self) -> Tensor:
        """The output ``(B, G, H/G, T, Dv)``."""
        batch, heads, group, length, _ = self.q.shape
        # In memory the heads of a query lie side by side, as the projection after them reads them.
        out = self.q.new_empty(batch, length, heads, group, self.v.shape[3]).permute(0, 2, 3, 1, 4)
        for b, queries, keys in self.tiles():
            q = self.queries(self.q, b, queries) * self.scale
            weights, empty = self.weights(b, queries, keys, q, self.keys(self.global_k, self.k, b, keys))
            rows = weights @ self.keys(self.global_v, self.v, b, keys)
            if empty is not None:  # a weight of 0 does not silence a NaN: 0 · NaN is NaN
                rows.masked_fill_(empty, 0.0)
            out[b, :, :, queries] = rows.unflatten(1, (group, -1))
        return out

    def backward(self, out: Tensor, d_out: Tensor) -> list[Tensor]:
        """The gradients of q, of keys and values, and of the global ones: see ``flash`` for the formulas."""
        dq = torch.empty_like(self.q)
        sources = self.k, self.v, self.global_k, self.global_v
        dk, dv, d_global_k, d_global_v = (torch.zeros_like(x, dtype=accum_dtype(self.q)) for x in sources)
        shared = self.global_k.shape[2]
        for b, queries, keys in self.tiles():
            q, d_rows = self.queries(self.q, b, queries) * self.scale, self.queries(d_out, b, queries)
            k = self.keys(self.global_k, self.k, b, keys)
            weights, empty = self.weights(b, queries, keys, q, k)
            d_total = (d_rows * self.queries(out, b, queries)).sum(-1, keepdim=True)
            d_scores = (d_rows @ self.keys(self.global_v, self.v, b, keys).mT).sub_(d_total).mul_(weights)
            if empty is not None:
                d_scores.masked_fill_(empty, 0.0)
            dq[b, :, :, queries] = (d_scores @ k).mul_(self.scale).unflatten(1, (self.q.shape[2], -1))
            d_k, d_v = d_scores.mT @ q, weights.mT @ d_rows
            d_global_k[b] += d_k[:, :shared]
            d_global_v[b] += d_v[:, :shared]
            dk[b, :, keys] += d_k[:, shared:]
            dv[b, :, keys] += d_v[:, shared:]
        return [dq, *(x.to(self.k.dtype) for x in (dk, dv, d_global_k, d_global_v))]


class _SlidingWindow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        tensors, ctx.settings = arguments[:8], arguments[8:]
        with without_autocast(tensors[0]):
            out = _Band(*arguments).forward()
        ctx.save_for_backward(*tensors, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, out = ctx.saved_tensors
        with without_autocast(d_out):
            gradients = _Band(*tensors, *ctx.settings).backward(out, d_out)
        return *gradients, *[None] * 7


def _part(x: Tensor, b: int, queries: slice, keys: slice) -> Tensor:
    """A tile of a mask or a bias: cut where an axis has its full size, to be broadcast where it has one entry."""
    b, queries = b if x.shape[0] > 1 else 0, queries if x.shape[3] > 1 else slice(None)
    return x[b, :, :, queries, keys if x.shape[4] > 1 else slice(None)]
