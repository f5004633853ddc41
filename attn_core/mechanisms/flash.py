"""Exact softmax attention in tiles: its weights are never in memory together, forward or backward.

A tile of queries meets one tile of keys after the other, and ``OnlineSoftmax`` carries the softmax across them. The
backward pass computes the weights again, tile by tile, from the one number a query that the forward pass kept.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attn_core import masks
from attn_core.contract import check_inputs, check_size
from attn_core.mechanisms.dense import attention_with_weights
from attn_core.mechanisms.online import OnlineSoftmax, exponential_

QUERY_TILE, KEY_TILE = 256, 512
ROWS = 1024
"""Rows of scores in a tile, all its heads together: with ``KEY_TILE``, 2 MiB of float32, which stay in a cache."""

Place = tuple[slice, slice, slice]
"""Where a tile of queries lies: which rows of the batch, which key heads, which queries."""


@dataclass(frozen=True)
class _Problem:
    """One call, query heads sorted by the key head that they read: q ``(B, G, H/G, T, D)``, k ``(B, G, S, D)``, v as k.

    ``mask`` and ``bias`` have the five axes ``(B, G, H/G, T, S)``, each of its full size or of size 1. In a tile the
    query heads of one key head lie one below the other, so that no key is ever repeated.
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
        logsumexp = self.q.new_empty(*self.q.shape[:4], 1, dtype=self.wide)
        for place in self.places():
            q = self.rows(self.q, place) * self.scale
            softmax = OnlineSoftmax(q.shape[:2], self.v.shape[3], dtype=self.wide, device=q.device)
            for keys in self.key_tiles(place):
                softmax.add(self.scores(q, place, keys), self.columns(self.v, place, keys))
            self.write(out, place, softmax.out())
            self.write(logsumexp, place, softmax.logsumexp())
        return out, logsumexp

    def backward(self, out: Tensor, logsumexp: Tensor, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v, from what the forward pass returned and the gradient of its output.

        With S the scores, P the weights and Δ the sum of dO ∘ O along each row, which equals that of dP ∘ P:
        dV = Pᵀ dO, dP = dO Vᵀ, dS = P ∘ (dP − Δ), dQ = dS K, dK = dSᵀ Q.
        """
        dq = torch.empty_like(self.q)
        dk, dv = (torch.zeros(x.shape, dtype=self.wide, device=x.device) for x in (self.k, self.v))
        for place in self.places():
            q, d_rows = self.rows(self.q, place) * self.scale, self.rows(d_out, place)
            delta = (d_rows * self.rows(out, place)).sum(-1, keepdim=True)
            # −inf − (−inf) would be NaN in an empty row: subtract 0 there, and its weights are exp(−inf) = 0.
            base = self.rows(logsumexp, place)
            base = base.masked_fill(base == -math.inf, 0.0)
            dq_rows = torch.zeros_like(q)
            for keys in self.key_tiles(place):
                weights = exponential_(self.scores(q, place, keys).sub_(base))
                d_scores = (d_rows @ self.columns(self.v, place, keys).mT).sub_(delta).mul_(weights)
                self.columns(dv, place, keys).baddbmm_(weights.mT, d_rows)
                self.columns(dk, place, keys).baddbmm_(d_scores.mT, q)
                dq_rows.baddbmm_(d_scores, self.columns(self.k, place, keys))
            self.write(dq, place, dq_rows.mul_(self.scale))
        return dq, dk.to(self.k.dtype), dv.to(self.v.dtype)

    def places(self) -> Iterator[Place]:
        """Cut the queries into tiles; where they are few, a tile takes several heads, or all heads of several rows."""
        batch, heads, group, queries, size = self.q.shape
        step = max(1, min(queries, self.query_tile // group))
        together = max(1, ROWS // max(step * group, size, self.v.shape[3]))  # the keys of a tile take room as well
        for b in _cut(batch, max(1, together // heads)):
            for h in _cut(heads, together):
                for t in _cut(queries, step):
                    yield b, h, t

    def key_tiles(self, place: Place) -> Iterator[slice]:
        """Cut the keys into tiles: under ``causal``, up to the last one that any of these queries may see."""
        keys, before = self.k.shape[2], self.k.shape[2] - self.q.shape[3]
        return _cut(min(keys, before + place[2].stop) if self.causal else keys, self.key_tile)

    def scores(self, q: Tensor, place: Place, keys: slice) -> Tensor:
        """A tile of scores, from rows of scaled queries: −inf where a query may not attend."""
        scores = q @ self.columns(self.k, place, keys).mT
        batch, heads, queries = place
        tile = scores.view(*self.q[batch, heads, :, queries].shape[:4], -1)

        def part(x: Tensor) -> Tensor:  # cut where it has its full size, to be broadcast where it has one entry
            where = zip((batch, heads, slice(None), queries, keys), x.shape, strict=True)
            return x[tuple(chosen if size > 1 else slice(None) for chosen, size in where)]

        if self.bias is not None:
            tile += part(self.bias)
        if self.mask is not None:
            tile.masked_fill_(~part(self.mask), -math.inf)
        ahead = queries.start + self.k.shape[2] - self.q.shape[3] - keys.start  # what the first query sees of these
        if self.causal and ahead < tile.shape[4] - 1:
            seen = masks.causal(tile.shape[3], tile.shape[4], torch.tensor([ahead], device=q.device))
            tile.masked_fill_(~seen, -math.inf)
        return scores

    def rows(self, x: Tensor, place: Place) -> Tensor:
        """What a place has of ``x (B, G, H/G, T, n)``, as ``(heads, rows, n)``."""
        batch, heads, queries = place
        return x[batch, heads, :, queries].to(self.wide).flatten(2, 3).flatten(0, 1)

    def write(self, x: Tensor, place: Place, rows: Tensor) -> None:
        """``rows``, the other way round."""
        batch, heads, queries = place
        part = x[batch, heads, :, queries]
        part.copy_(rows.view(part.shape))

    def columns(self, x: Tensor, place: Place, keys: slice) -> Tensor:
        """What a tile reads of ``x (B, G, S, n)``, as ``(heads, keys, n)``; a view of dk and dv."""
        batch, heads, _ = place
        return x[batch, heads, keys].to(self.wide).flatten(0, 1)

    @property
    def wide(self) -> torch.dtype:
        """The dtype of scores and sums."""
        return torch.promote_types(self.q.dtype, torch.float32)


def _cut(size: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
        mask, bias, *ctx.settings = options
        with torch.autocast(q.device.type, enabled=False):  # it would take the products back to half precision
            out, logsumexp = _Problem(q, k, v, *options).forward()
        ctx.save_for_backward(q, k, v, mask, bias, out, logsumexp)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, out, logsumexp = ctx.saved_tensors
        with torch.autocast(d_out.device.type, enabled=False):
            gradients = _Problem(*tensors, *ctx.settings).backward(out, logsumexp, d_out)
        return *gradients, *[None] * 6


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

    Shapes: the contract's (``attn_core.__doc__``); returns ``out (B, H, T, Dv)``. Mask and bias are read tile by tile,
    in the shape that they have. For the backward pass it keeps q, k, v, the output and one number a query; there is no
    second derivative. On CUDA it calls ``flash_triton.flash_attention_triton``, and refuses what that refuses.

    Raises:
        ValueError: an argument breaks the contract, or ``bias`` wants a gradient.
        ImportError: q is on a CUDA device, and the package ``triton`` is not installed.

    Source: Dao et al. 2022, algorithms 1 and 4; Dao 2023, section 3.1.
    """
    if isinstance(q, Tensor) and q.device.type == "cuda":
        from attn_core.mechanisms.flash_triton import flash_attention_triton  # triton may be absent

        return flash_attention_triton(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)
    return _in_tiles(q, k, v, mask, bias, causal, scale, QUERY_TILE, KEY_TILE)


class FlashAttention(nn.Module):
    """``flash_attention`` as a module that knows the sizes of its tiles.

    ``query_tile`` counts the rows of scores that one key head has in a tile: queries times heads of its group.
    ``key_tile`` counts the keys. The output is the same to rounding whatever they are. With neither, the module is
    ``flash_attention``; with one, it takes the path in plain PyTorch on every device.

    Raises:
        ValueError: a size below 1; in use, as ``flash_attention``.

    Source: as ``flash_attention``.
    """

    def __init__(self, *, query_tile: int | None = None, key_tile: int | None = None) -> None:
        super().__init__()
        for name, size in (("query_tile", query_tile), ("key_tile", key_tile)):
            if size is not None:
                check_size(name, size)
        self.query_tile, self.key_tile = query_tile, key_tile

    with_weights = staticmethod(attention_with_weights)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        """``flash_attention`` in these tiles."""
        if self.query_tile is None and self.key_tile is None:
            return flash_attention(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)
        sizes = self.query_tile or QUERY_TILE, self.key_tile or KEY_TILE
        return _in_tiles(q, k, v, mask, bias, causal, scale, *sizes)

    def extra_repr(self) -> str:
        """The sizes that ``print`` shows."""
        return f"query_tile={self.query_tile}, key_tile={self.key_tile}"


def _in_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    causal: bool,
    scale: float | None,
    query_tile: int,
    key_tile: int,
) -> Tensor:
    """The path in plain PyTorch; the query heads of each key head get an axis of their own."""
    check_inputs(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)
    if bias is not None and bias.requires_grad:
        raise ValueError(
            "bias: expected one without gradient, got requires_grad=True; attn_core.attention gives it one"
        )
    factor, groups = 1.0 / math.sqrt(q.shape[3]) if scale is None else float(scale), k.shape[1]
    extras = (masks.group_by_kv_head(x, groups) for x in (mask, bias))
    out: Tensor = _Flash.apply(q.unflatten(1, (groups, -1)), k, v, *extras, causal, factor, query_tile, key_tile)
    return out.flatten(1, 2)
