"""Block selection: each query attends to the blocks of keys whose means score best, and to those next to it.

The pairs of a query and a block that it chose are sorted by block and cut into chunks, so that a chunk is one product
of many queries with one block of keys. The largest possible number of chunks follows from shapes alone, so nothing has
to be read back from the device.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.contract import Call, Mechanism, accum_dtype, check_integer, without_autocast
from attn_core.derivatives import first_order, refuse_transforms
from attn_core.device import tile_limit
from attn_core.mechanisms.dense import weigh
from attn_core.mechanisms.online import exponential_

CHUNK = 64
"""Queries in a chunk."""
LOWEST = torch.finfo(torch.float32).min
"""The score of a hidden key: finite, so that a row of them has no NaN."""
SCORES = 2**18
"""Scores in a tile: 1 MiB of float32, which stays in a cache."""


class BlockSelection(Mechanism):
    """Softmax attention to the ``selected`` blocks of keys whose means score best, and to the ``local`` nearest ones.

    The keys are cut into blocks of ``block_size``, from the first key on. Query i of T stands at position S − T + i of
    the S keys. It always sees its own block and the ``local`` − 1 before it. The score of any other block (under
    ``causal``, of any earlier one) is the query times the mean of the block's keys that ``mask`` shows. Query heads
    that share a key head choose together, by the sum of their softmax over the blocks. A block whose share rounds to
    zero is not chosen; of blocks with equal scores, any may be. The choice has no gradient: queries and keys learn by
    exact attention to the blocks that were chosen.

    Time grows with ``T · (local + selected) · block_size``; time and memory grow with the scores of blocks, ``T · S /
    block_size``. There are no derivatives beyond the first. A call takes no bias, and a mask that hides the same keys
    from all heads and queries.

    Source: Lu et al. 2025, section 2.2 (means; no gradient); Yuan et al. 2025, section 3.3 (a choice per group).
    """

    aligned_only = True
    """Whether a query's position among the keys is taken from T and S alone."""

    def __init__(self, block_size: int = 64, *, selected: int = 8, local: int = 2) -> None:
        super().__init__()
        check_integer("block_size", block_size)
        check_integer("selected", selected, at_least=0)
        check_integer("local", local)
        self.block_size, self.selected, self.local = block_size, selected, local

    @torch.no_grad()
    def choose(self, call: Call) -> tuple[Tensor, Tensor]:
        """The blocks of each query, ``(B, G, T, n)``, and the last key that it sees in each: −1 where it sees none."""
        call.refuse_pairs()
        q, k = (x.to(accum_dtype(call.q)) for x in call[:2])
        queries, keys = q.shape[2], k.shape[2]
        shown = self._shown(call)
        number = shown.sum(3)
        means = (self._cut(k) * shown[..., None]).sum(3) / number[..., None]  # NaN without a key: masked below
        position = torch.arange(keys - queries, keys, device=q.device)[:, None]
        own, block = position // self.block_size, torch.arange(means.shape[2], device=q.device)
        before = own - block
        near = before < self.local if call.causal else (before < self.local) & (before >= 0)
        scores = (q * call.scale).unflatten(1, (k.shape[1], -1)) @ means[:, :, None].mT
        scores = scores.masked_fill_(near | (number == 0)[:, :, None, None], -math.inf)
        best = scores.softmax(-1).sum(2).topk(min(self.selected, len(block)), dim=-1)
        nearest = before[:, : self.local].expand(*best.indices.shape[:3], -1)  # own, own − 1, and so on
        blocks, exist = torch.cat((nearest, best.indices), 3), torch.cat((nearest >= 0, best.values > 0), 3)
        last = position if call.causal else torch.full_like(position, keys - 1)
        return blocks.clamp_(min=0), last.where(exist, -1)

    def attend(self, call: Call) -> Tensor:
        """Attend as the class says, chunk by chunk."""
        refuse_transforms("BlockSelection", *call[:4])
        with without_autocast(call.q):
            blocks, last = self.choose(call)
            q, k, v = (x.to(accum_dtype(call.q)) for x in call[:3])
            if q.numel() == 0 or v.numel() == 0:
                return (q.new_zeros(*q.shape[:3], v.shape[3]) + 0 * (q.sum() + k.sum() + v.sum())).to(call.q.dtype)
            grouped = (q * call.scale).unflatten(1, (k.shape[1], -1)).transpose(2, 3)
            shown = self._shown(call).expand(-1, k.shape[1], -1, -1).flatten(0, 1)
            places = torch.arange(shown[0].numel(), device=q.device).view(shown.shape[1:])
            places = places.where(shown, k.shape[2])  # out of sight where a key is hidden
            pairs = _sort(blocks.flatten(0, 1), last.flatten(0, 1), places, grouped.shape[3])
            cut = (x.flatten(0, 2) for x in (grouped, self._cut(k), self._cut(v)))
            out = first_order("BlockSelection", _Selected, *cut, pairs)
        return out.view(*grouped.shape[:4], -1).transpose(2, 3).flatten(1, 2).to(call.q.dtype)

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """The explicit path: dense attention with the choice as a mask."""
        with without_autocast(call.q):
            blocks, last = self.choose(call)
        place = torch.arange(call.k.shape[2], device=call.q.device)
        lasts = last.new_full((*last.shape[:3], -(-len(place) // self.block_size)), -1)
        seen = lasts.scatter_reduce(3, blocks, last, "amax")[..., place // self.block_size] >= place
        seen = seen.repeat_interleave(call.q.shape[1] // call.k.shape[1], dim=1)
        return weigh(call._replace(mask=seen if call.mask is None else call.mask & seen))

    def _shown(self, call: Call) -> Tensor:
        """Which keys the mask shows, ``(B, 1, blocks, block_size)``: none beyond the last."""
        mask = torch.ones((), dtype=torch.bool, device=call.q.device) if call.mask is None else call.mask
        return self._cut(mask.expand(call.q.shape[0], 1, 1, call.k.shape[2]).mT).squeeze(4)

    def _cut(self, x: Tensor) -> Tensor:
        """Keys or values as ``(B, G, blocks, block_size, ·)``, the last block filled up with zeros."""
        size, count = self.block_size, -(-x.shape[2] // self.block_size)
        return functional.pad(x, (0, 0, 0, count * size - x.shape[2])).unflatten(2, (count, size))


class _Pairs(NamedTuple):
    """C chunks of c slots, each chunk with one of the M ``blocks``, whose keys stand at ``places (M, b)``.

    A slot has a query of the R in ``rows (C, c)``, and the ``last (C, c)`` key that it sees, or −1. Among all
    C · c · h slots of heads, ``slots (R · h, n)`` are those of each query and head.
    """

    rows: Tensor
    last: Tensor
    blocks: Tensor
    places: Tensor
    slots: Tensor


def _sort(blocks: Tensor, last: Tensor, places: Tensor, heads: int) -> _Pairs:
    """Sort the pairs by block: ``blocks`` and ``last (N, T, n)``, ``places (N, blocks, b)``."""
    (batch, queries, each), count = blocks.shape, places.shape[1]
    chunk, pairs, number = min(CHUNK, queries), blocks.numel(), batch * count
    index = torch.arange(max(pairs, number + 1, heads), device=blocks.device)
    ordered, order = (blocks + count * index[:batch, None, None]).flatten().sort()
    starts = torch.searchsorted(ordered, index[: number + 1])
    chunks = (starts.diff() + (chunk - 1)) // chunk
    ends = chunks.cumsum(0)
    slot = index[:pairs] + ((ends - chunks) * chunk - starts[:-1])[ordered]
    total = min(pairs, pairs // chunk + number)  # each block has at most one chunk that is not full
    of_chunk = torch.searchsorted(ends, index[:total], right=True).clamp_(max=number - 1)
    # Unused slots name a query of the same row of the batch, so that a NaN never spreads to another row.
    rows = (of_chunk // count * queries)[:, None].repeat(1, chunk).view(-1).scatter_(0, slot, order // each)
    lasts = torch.full_like(rows, -1).scatter_(0, slot, last.flatten()[order])
    slots = torch.empty_like(order).scatter_(0, order, slot * heads).view(-1, 1, each) + index[:heads, None]
    return _Pairs(rows.view(-1, chunk), lasts.view(-1, chunk), of_chunk, places.flatten(0, 1), slots.flatten(0, 1))


@dataclass(frozen=True)
class _Selected:
    """Queries ``(R, h, D)``, keys ``(M, b, D)`` and values ``(M, b, Dv)``: the output ``(R, h, Dv)`` over all pairs."""

    q: Tensor
    k: Tensor
    v: Tensor
    pairs: _Pairs

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """The output; for each query and head its highest score, and the sum of the exponentials relative to that."""
        slots = self.pairs.rows.numel() * self.q.shape[1]
        out, tops, totals = (self.q.new_empty(shape) for shape in ((slots, self.v.shape[2]), slots, slots))
        for tile, here, _, _, scores in self.tiles():
            top = torch.amax(scores, -1, keepdim=True, out=tops[here].view(*scores.shape[:2], 1))
            weights = exponential_(scores.sub_(top))
            torch.sum(weights, -1, out=totals[here].view(scores.shape[:2]))
            torch.bmm(weights, self.v[self.pairs.blocks[tile]], out=out[here].view(*scores.shape[:2], -1))
        tops = tops[self.pairs.slots]
        base = tops.amax(-1, keepdim=True)
        shares = (tops - base).exp_()
        total = (shares * totals[self.pairs.slots]).sum(-1, keepdim=True)
        out = functional.embedding_bag(self.pairs.slots, out, mode="sum", per_sample_weights=shares.div_(total))
        return out.masked_fill_(base == LOWEST, 0.0).view(*self.q.shape[:2], -1), base, total

    def backward(self, out: Tensor, base: Tensor, total: Tensor, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As in ``flash``: dV = Pᵀ dO, dS = P ∘ (dO Vᵀ − D), dQ = dS K, dK = dSᵀ Q, with D the sums of dO ∘ O."""
        q, k, v, pairs = self.q, self.k, self.v, self.pairs
        logsumexp = (base + total.log()).masked_fill(base == LOWEST, 0.0)  # of an empty row: weights of 0 below
        d_total = (d_out * out).sum(-1, keepdim=True)
        dq, dk, dv = q.new_empty(pairs.rows.numel() * q.shape[1], q.shape[2]), torch.zeros_like(k), torch.zeros_like(v)
        for tile, here, rows, keys, scores in self.tiles():
            blocks, mine = pairs.blocks[tile], pairs.rows[tile]
            d_rows, base, total = (x.view(*q.shape[:2], -1)[mine].flatten(1, 2) for x in (d_out, logsumexp, d_total))
            weights = exponential_(scores.sub_(base))
            d_scores = (d_rows @ v[blocks].mT).sub_(total).mul_(weights)
            torch.bmm(d_scores, keys, out=dq[here].view_as(rows))
            dk.index_add_(0, blocks, d_scores.mT @ rows)
            dv.index_add_(0, blocks, weights.mT @ d_rows)
        return functional.embedding_bag(pairs.slots, dq, mode="sum").view_as(q), dk, dv

    def tiles(self) -> Iterator[tuple[slice, slice, Tensor, Tensor, Tensor]]:
        """Chunks, their slots, queries ``(·, c · h, D)``, keys ``(·, b, D)``, and scores, ``LOWEST`` where hidden."""
        pairs, (chunk, heads) = self.pairs, (self.pairs.rows.shape[1], self.q.shape[1])
        step = max(1, tile_limit(SCORES, self.q.device) // (chunk * heads * self.k.shape[1]))
        for start in range(0, len(pairs.rows), step):
            tile = slice(start, min(start + step, len(pairs.rows)))
            rows, keys = self.q[pairs.rows[tile]].flatten(1, 2), self.k[pairs.blocks[tile]]
            scores = rows @ keys.mT
            hidden = pairs.places[pairs.blocks[tile]][:, None] > pairs.last[tile][..., None]
            scores.unflatten(1, (chunk, heads)).masked_fill_(hidden[:, :, None], LOWEST)
            yield tile, slice(tile.start * chunk * heads, tile.stop * chunk * heads), rows, keys, scores
