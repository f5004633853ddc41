"""Exact softmax attention in tiles: the weights are never in memory all at once, forward or backward.

A tile of queries meets one tile of keys after the other, and ``OnlineSoftmax`` carries the softmax across them. The
backward pass computes the weights again, tile by tile, from the one number per query that the forward pass kept.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attn_core.contract import Call, Mechanism, accum_dtype, check_integer, contract
from attn_core.derivatives import first_order
from attn_core.mechanisms.dense import weigh
from attn_core.mechanisms.online import OnlineSoftmax, exponential_

QUERY_TILE, KEY_TILE = 256, 512
ROWS = 1024
"""Rows of scores in a tile, all its heads together: with ``KEY_TILE``, 2 MiB of float32, which stay in a cache."""

Tile = tuple[slice, slice, slice]
"""Which queries a tile has: rows of the batch, key-value heads, queries."""


@dataclass(frozen=True)
class TiledAttention:
    """A call whose query heads are grouped by key-value head: q ``(B, G, H/G, T, D)``, k ``(B, G, S, D)``, v as k.

    ``mask`` and ``bias`` broadcast to ``(B, G, H/G, T, S)``. In a tile the query heads of one key-value head lie one
    below the other, so that no key is ever repeated.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    bias: Tensor | None
    causal: bool
    scale: float
    query_tile: int
    key_tile: int

    def forward(self) -> tuple[Tensor, Tensor]:
        """The output ``(B, G, H/G, T, Dv)``, and the log-sum-exp of each query's scores ``(B, G, H/G, T, 1)``."""
        out = self.q.new_empty(*self.q.shape[:4], self.v.shape[3])
        logsumexp = self.q.new_empty(*self.q.shape[:4], 1, dtype=accum_dtype(self.q))
        for tile in self.tiles():
            q = self.rows(self.q, tile) * self.scale
            softmax = OnlineSoftmax(q.shape[:2], self.v.shape[3], dtype=accum_dtype(self.q), device=q.device)
            for keys in self.key_tiles(tile):
                softmax.add(self.scores(q, tile, keys), self.columns(self.v, tile, keys))
            self.write(out, tile, softmax.out())
            self.write(logsumexp, tile, softmax.logsumexp())
        return out, logsumexp

    def backward(self, out: Tensor, logsumexp: Tensor, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v.

        With S the scores, P the weights and Δ the sum of dO ∘ O along each row, which equals that of dP ∘ P:
        dV = Pᵀ dO, dP = dO Vᵀ, dS = P ∘ (dP − Δ), dQ = dS K, dK = dSᵀ Q.
        """
        dq = torch.empty_like(self.q)
        dk, dv = (torch.zeros(x.shape, dtype=accum_dtype(self.q), device=x.device) for x in (self.k, self.v))
        for tile in self.tiles():
            q, d_rows = self.rows(self.q, tile) * self.scale, self.rows(d_out, tile)
            delta = (d_rows * self.rows(out, tile)).sum(-1, keepdim=True)
            # −inf − (−inf) would be NaN in an empty row: subtract 0 there, and its weights are exp(−inf) = 0.
            base = self.rows(logsumexp, tile)
            base = base.masked_fill(base == -math.inf, 0.0)
            dq_rows = torch.zeros_like(q)
            for keys in self.key_tiles(tile):
                weights = exponential_(self.scores(q, tile, keys).sub_(base))
                d_scores = (d_rows @ self.columns(self.v, tile, keys).mT).sub_(delta).mul_(weights)
                self.columns(dv, tile, keys).baddbmm_(weights.mT, d_rows)
                self.columns(dk, tile, keys).baddbmm_(d_scores.mT, q)
                dq_rows.baddbmm_(d_scores, self.columns(self.k, tile, keys))
            self.write(dq, tile, dq_rows.mul_(self.scale))
        return dq, dk.to(self.k.dtype), dv.to(self.v.dtype)

    def tiles(self) -> Iterator[Tile]:
        """Cut the queries into tiles; where they are few, a tile takes several heads, or all heads of several rows."""
        batch, heads, group, queries, size = self.q.shape
        step = max(1, min(queries, self.query_tile // group))
        together = max(1, ROWS // max(step * group, size, self.v.shape[3]))  # the keys of a tile take room as well
        for b in _cut(batch, max(1, together // heads)):
            for h in _cut(heads, together):
                for t in _cut(queries, step):
                    yield b, h, t

    def key_tiles(self, tile: Tile) -> Iterator[slice]:
        """Cut the keys into tiles: under ``causal``, up to the last key that any of the tile's queries may see."""
        keys, before = self.k.shape[2], self.k.shape[2] - self.q.shape[3]
        return _cut(min(keys, before + tile[2].stop) if self.causal else keys, self.key_tile)

    def scores(self, q: Tensor, tile: Tile, keys: slice) -> Tensor:
        """The scores of a tile from rows of scaled queries: −inf where a query may not attend."""
        scores = q @ self.columns(self.k, tile, keys).mT
        batch, heads, queries = tile
        by_head = scores.view(*self.q[batch, heads, :, queries].shape[:4], -1)

        def part(x: Tensor) -> Tensor:  # axes of one entry are left to broadcast
            where = zip((batch, heads, slice(None), queries, keys), x.shape, strict=True)
            return x[tuple(chosen if size > 1 else slice(None) for chosen, size in where)]

        if self.bias is not None:
            by_head += part(self.bias)
        if self.mask is not None:
            by_head.masked_fill_(~part(self.mask), -math.inf)
        ahead = queries.start + self.k.shape[2] - self.q.shape[3] - keys.start  # the last key the first query sees
        if self.causal and ahead < by_head.shape[4] - 1:
            visible = torch.ones(by_head.shape[3:], dtype=torch.bool, device=q.device).tril(ahead)
            by_head.masked_fill_(~visible, -math.inf)
        return scores

    def rows(self, x: Tensor, tile: Tile) -> Tensor:
        """The part of ``x (B, G, H/G, T, n)`` that belongs to a tile, as ``(heads, rows, n)``."""
        batch, heads, queries = tile
        return x[batch, heads, :, queries].to(accum_dtype(self.q)).flatten(2, 3).flatten(0, 1)

    def write(self, x: Tensor, tile: Tile, rows: Tensor) -> None:
        """Write ``rows`` back to where ``self.rows`` read them."""
        batch, heads, queries = tile
        part = x[batch, heads, :, queries]
        part.copy_(rows.view(part.shape))

    def columns(self, x: Tensor, tile: Tile, keys: slice) -> Tensor:
        """The keys that a tile reads of ``x (B, G, S, n)``, as ``(heads, keys, n)``; a view of dk and dv."""
        batch, heads, _ = tile
        return x[batch, heads, keys].to(accum_dtype(self.q)).flatten(0, 1)


def _cut(size: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention in tiles: exact, with gradients, and without a tensor of shape ``(B, H, T, S)``.

    Mask and bias are read tile by tile, in the shape that they have. For the backward pass it keeps q, k, v, the output
    and one number a query. There is no second derivative, none under ``torch.func`` or in forward mode, and none of a
    bias: asking for one raises an error, and ``attention_with_weights`` has them all. On CUDA, the kernels of
    ``flash_triton`` need the package ``triton``; see there for what they refuse.

    Source: Dao et al. 2022, algorithms 1 and 4; Dao 2023, section 3.1.
    """
    return FlashAttention().attend(contract(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale))


class FlashAttention(Mechanism):
    """``flash_attention`` as a module that knows the sizes of its tiles.

    ``query_tile`` counts the rows of scores that one key head has in a tile: queries times heads of its group.
    ``key_tile`` counts the keys. With one of them, the module takes PyTorch's own operations on CUDA, too.
    """

    def __init__(self, *, query_tile: int | None = None, key_tile: int | None = None) -> None:
        super().__init__()
        for name, size in (("query_tile", query_tile), ("key_tile", key_tile)):
            if size is not None:
                check_integer(name, size)
        self.query_tile, self.key_tile = query_tile, key_tile

    def attend(self, call: Call) -> Tensor:
        """``flash_attention`` in these tiles."""
        call.refuse_bias_gradient()
        if call.q.device.type == "cuda" and self.query_tile is None and self.key_tile is None:
            from attn_core.mechanisms.flash_triton import flash_attention_triton  # triton may be absent

            return flash_attention_triton(call)
        q, mask, bias = call.group_by_kv_head()
        tiles = self.query_tile or QUERY_TILE, self.key_tile or KEY_TILE
        settings = mask, bias, call.causal, call.scale, *tiles
        return first_order("flash_attention", TiledAttention, q, call.k, call.v, *settings).flatten(1, 2)

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """``attention_with_weights``."""
        return weigh(call)
