"""Sliding-window attention: each query meets the keys next to it, so time and memory grow linearly with the length.

A tile of neighbouring queries meets one slice of the keys, and the corners of the tile that lie outside the window are
masked. A tile holds whole rows of weights, so each row needs one softmax, which the backward pass computes again.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.contract import Call, Mechanism, accum_dtype, check_integer
from attn_core.derivatives import first_order
from attn_core.device import in_tiles
from attn_core.mechanisms.dense import attention, weigh

TILE = 128
"""Rows of a tile that one key-value head has: queries times heads of its group."""


class SlidingWindow(Mechanism):
    """Softmax attention to the ``before`` keys before a query, its own, and the ``after`` keys after it.

    ``after`` is ``before`` by default: ``SlidingWindow(256)`` sees 256 keys on either side, 513 in all; a call with
    ``causal=True`` sees none after. With ``dilation`` d the window reaches d times as far and holds every d-th key;
    such a window is computed as dense attention under a mask.

    Query i of T stands at position S − T + i of the S keys, as in the contract's causal mask. This does not hold in a
    cache whose rows differ in length, nor in cross-attention, so layers refuse a window there.

    On a CPU, scores take memory for one tile; elsewhere for all windows at once. The backward pass keeps only inputs
    and output. There are no other derivatives, and a bias may not require a gradient.

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
        """``attend_in_window``, or ``attention`` under the window as a mask if there is a dilation."""
        if self.dilation > 1:
            return attention(**self._masked(call)._asdict())
        return attend_in_window(call, self.before, self.after)

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """The explicit path: dense attention under the window as a mask."""
        return weigh(self._masked(call))

    def _masked(self, call: Call) -> Call:
        window = self.allowed(call.q.shape[2], call.k.shape[2], device=call.q.device)
        return call._replace(mask=window if call.mask is None else call.mask & window)


def attend_in_window(
    call: Call,
    before: int,
    after: int,
    *,
    global_k: Tensor | None = None,
    global_v: Tensor | None = None,
    global_mask: Tensor | None = None,
) -> Tensor:
    """``SlidingWindow`` of a checked call, with N more keys that every query sees, in one softmax with its window's.

    Shapes: ``global_k (B, G, N, D)``, ``global_v (B, G, N, Dv)`` and ``global_mask (B, N)``, True = may attend; neither
    ``causal`` nor ``mask`` concerns them.
    """
    call.refuse_bias_gradient()
    q, k, v, _, _, causal, scale = call
    if global_k is None or global_v is None:
        global_k, global_v = k[:, :, :0], v[:, :, :0]
    grouped, mask, bias = call.group_by_kv_head()
    longest = max(q.shape[2], k.shape[2], 1)
    settings = min(before, longest), 0 if causal else min(after, longest), scale
    return first_order(
        "SlidingWindow", _Band, grouped, k, v, global_k, global_v, mask, bias, global_mask, *settings
    ).flatten(1, 2)


class _Tile(NamedTuple):
    """Some rows of the batch, some queries, and the keys that exist in their windows.

    The queries form ``blocks`` blocks of ``size``. If there are several, each block meets ``before + after + size``
    keys, and zeros stand for the ``left`` and ``right`` keys that the first and the last block lack. The first query
    sees the keys of its block from the one with the number ``low`` on.
    """

    rows: slice
    queries: slice
    keys: slice
    blocks: int
    size: int
    left: int
    right: int
    low: int


@dataclass(frozen=True)
class _Band:
    """One call: q ``(B, G, H/G, T, D)``; keys and values ``(B, G, S, n)``; mask and bias with five axes."""

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
    scale: float

    def tiles(self) -> Iterator[_Tile]:
        """On a CPU a block of queries in one row of the batch; elsewhere all at once. A tile has all heads."""
        batch, _, group, queries, _ = self.q.shape
        keys, width = self.k.shape[2], self.before + self.after
        size, blocks, rows = max(1, TILE // group), 1, max(1, TILE // max(group * queries, 1))
        if not in_tiles(self.q.device):
            size = max(size, width)
            blocks, rows = max(1, -(-queries // size)), max(1, batch)
        for b in range(0, batch, rows):
            for start in range(0, queries, size * blocks):
                stop = min(start + size * blocks, queries)
                count = size * blocks if blocks > 1 else stop - start
                low = start + keys - queries - self.before
                first = max(low, 0)
                end = max(first, min(low + count + width, keys))
                beyond = (first - low, low + count + width - end, 0) if blocks > 1 else (0, 0, low - first)
                yield _Tile(slice(b, b + rows), slice(start, stop), slice(first, end), blocks, count // blocks, *beyond)

    def weights(self, tile: _Tile, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor | None]:
        """The weights ``(b, G, blocks, rows, N + keys)`` of a tile, global keys first; which rows are empty."""
        shared = self.global_k.shape[2]
        scores = q @ k.mT
        by_head = scores.unflatten(3, (-1, tile.size))
        if self.global_mask is not None:
            by_head[..., :shared].masked_fill_(~self.global_mask[tile.rows, None, None, None, None], -math.inf)
        near = by_head[..., shared:]
        # Unless one of these holds, each query sees its own key.
        maybe_empty = self.bias is not None or self.q.shape[3] > self.k.shape[2] or tile.blocks > 1
        if self.bias is not None:
            near += self.part(self.bias, tile)
        if self.mask is not None:
            hidden = ~self.part(self.mask, tile)
            # In a cache, most tiles meet no padding, and hiding it would cost a third as much as the products.
            if not in_tiles(q.device) or hidden.any():
                near.masked_fill_(hidden, -math.inf)
                maybe_empty = True
        if tile.blocks > 1:
            exist = torch.zeros(tile.keys.stop - tile.keys.start, dtype=torch.bool, device=q.device)
            beyond = functional.pad(exist, (tile.left, tile.right), value=True).unfold(0, near.shape[5], tile.size)
            near.masked_fill_(beyond[:, None, None], -math.inf)
        # Row r sees the columns from low + r to high + r: hide the two corners beyond.
        high, (rows, columns) = tile.low + self.before + self.after, near.shape[4:]
        end, start = max(tile.low + rows - 1, 0), max(high + 1, 0)
        corner = torch.ones(rows, columns, dtype=torch.bool, device=q.device)
        near[..., :end].masked_fill_(corner[:, :end].tril(tile.low - 1), -math.inf)
        near[..., start:].masked_fill_(corner[:, start:].triu(high + 1 - start), -math.inf)
        if not maybe_empty or scores.shape[4] == 0:
            return torch.softmax(scores, -1), None
        empty = scores.amax(-1, keepdim=True) == -math.inf
        return torch.softmax(scores, -1).masked_fill_(empty, 0.0), empty

    def queries(self, x: Tensor, tile: _Tile) -> Tensor:
        """A tile's rows of ``x (B, G, H/G, T, n)``: ``(b, G, blocks, rows, n)``, the heads of a group stacked."""
        part = x[tile.rows, :, :, tile.queries].to(accum_dtype(self.q))
        part = _pad(part, 3, 0, tile.blocks * tile.size - part.shape[3])
        return part.unflatten(3, (tile.blocks, tile.size)).transpose(2, 3).flatten(3, 4)

    def write(self, x: Tensor, tile: _Tile, rows: Tensor) -> None:
        """Write ``rows`` back to where ``queries`` read them."""
        part = x[tile.rows, :, :, tile.queries]
        part.copy_(rows.unflatten(3, (-1, tile.size)).transpose(2, 3).flatten(3, 4)[:, :, :, : part.shape[3]])

    def keys(self, shared: Tensor, near: Tensor, tile: _Tile) -> Tensor:
        """The global keys or values and those of each block: ``(b, G, blocks, N + keys, n)``."""
        part = _pad(near[tile.rows, :, tile.keys].to(accum_dtype(self.q)), 2, tile.left, tile.right)
        part = part.unfold(2, part.shape[2] - (tile.blocks - 1) * tile.size, tile.size).mT
        if shared.shape[2] == 0:
            return part
        return torch.cat((shared[tile.rows, :, None].to(part.dtype).expand(-1, -1, tile.blocks, -1, -1), part), 3)

    def add_windows(self, total: Tensor, tile: _Tile, part: Tensor) -> None:
        """Add to ``total (B, G, S, n)`` the blocks' parts for their keys, ``part (b, G, blocks, keys, n)``."""
        target = total[tile.rows, :, tile.keys]
        if tile.blocks > 1:
            shape = [*target.shape[:2], tile.left + target.shape[2] + tile.right, target.shape[3]]
            part = torch.ops.aten.unfold_backward(part.mT, shape, 2, part.shape[3], tile.size)
            target += part[:, :, tile.left : tile.left + target.shape[2]]
        else:
            target += part[:, :, 0]

    def part(self, x: Tensor, tile: _Tile) -> Tensor:
        """A view of the blocks of a mask or a bias ``(b, G, blocks, H/G, queries, keys)``; axes of size 1 stay."""
        x = x[tile.rows if x.shape[0] > 1 else slice(None)]
        by_query, by_key = x.shape[3] > 1, x.shape[4] > 1
        if by_query:
            x = x[:, :, :, tile.queries]
            x = _pad(x, 3, 0, tile.blocks * tile.size - x.shape[3])
        if by_key:
            x = _pad(x[..., tile.keys], 4, tile.left, tile.right)
        batch, heads, group, _, keys = x.shape
        if by_key and tile.blocks > 1:
            keys = tile.size + self.before + self.after
        one, two, three, down, right = x.stride()
        step = tile.size * (down * by_query + right * by_key)
        shape = batch, heads, tile.blocks, group, tile.size if by_query else 1, keys
        return x.as_strided(shape, (one, two, step, three, down, right))

    def forward(self) -> tuple[Tensor]:
        """The output ``(B, G, H/G, T, Dv)``."""
        batch, heads, group, length, _ = self.q.shape
        # In memory the heads of a query lie side by side, as the projection after them reads them.
        out = self.q.new_empty(batch, length, heads, group, self.v.shape[3]).permute(0, 2, 3, 1, 4)
        for tile in self.tiles():
            q = self.queries(self.q, tile) * self.scale
            weights, empty = self.weights(tile, q, self.keys(self.global_k, self.k, tile))
            rows = weights @ self.keys(self.global_v, self.v, tile)
            if empty is not None:  # a weight of 0 is not enough: 0 · NaN is NaN
                rows.masked_fill_(empty, 0.0)
            self.write(out, tile, rows)
        return (out,)

    def backward(self, out: Tensor, d_out: Tensor) -> list[Tensor]:
        """The gradients of q, of keys and values, and of the global ones: see ``flash`` for the formulas."""
        dq = torch.empty_like(self.q)
        sources = self.k, self.v, self.global_k, self.global_v
        dk, dv, d_global_k, d_global_v = (torch.zeros_like(x, dtype=accum_dtype(self.q)) for x in sources)
        shared = self.global_k.shape[2]
        for tile in self.tiles():
            q, d_rows = self.queries(self.q, tile) * self.scale, self.queries(d_out, tile)
            k = self.keys(self.global_k, self.k, tile)
            weights, empty = self.weights(tile, q, k)
            d_total = (d_rows * self.queries(out, tile)).sum(-1, keepdim=True)
            d_scores = (d_rows @ self.keys(self.global_v, self.v, tile).mT).sub_(d_total).mul_(weights)
            if empty is not None:
                d_scores.masked_fill_(empty, 0.0)
            self.write(dq, tile, (d_scores @ k).mul_(self.scale))
            for total, d_global, part in ((dk, d_global_k, d_scores.mT @ q), (dv, d_global_v, weights.mT @ d_rows)):
                d_global[tile.rows] += part[:, :, :, :shared].sum(2)
                self.add_windows(total, tile, part[:, :, :, shared:])
        return [dq, *(x.to(self.k.dtype) for x in (dk, dv, d_global_k, d_global_v))]


def _pad(x: Tensor, axis: int, left: int, right: int) -> Tensor:
    """``x`` with so many zeros before and after it on this axis; ``x`` itself if there are none to add."""
    return functional.pad(x, [0, 0] * (x.dim() - 1 - axis) + [left, right]) if left or right else x
