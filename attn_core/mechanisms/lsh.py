"""Reformer's attention: each query reads the keys that random hashes put near it, in O(n log n) instead of O(n²).

Queries and keys are the same vectors. In each of several rounds they are hashed into buckets and sorted by bucket, and
the sorted sequence is cut into chunks: a token attends to the tokens of its bucket in its own chunk and the one before.
Over all rounds together, the output is exactly softmax attention over the pairs that meet in at least one round.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attn_core.contract import Call, Mechanism, accum_dtype, check_integer, check_key_mask, without_autocast
from attn_core.device import tile_limit
from attn_core.mechanisms.dense import attend
from attn_core.mechanisms.online import exponential_

SCORES = 2**18
"""Scores in a tile: 1 MiB of float32, which stays in a cache."""


def lsh_attention_plain(q: Tensor, v: Tensor, buckets: Tensor, *, chunk: int) -> Tensor:
    """The idea in plain PyTorch: dense attention with a mask that says which tokens meet.

    Shapes: ``q (N, T, D)``, which are also the keys; ``v (N, T, Dv)``; ``buckets (N, R, T)``, the bucket of each token
    in each of R rounds. Returns ``(N, T, Dv)``.

    Source: Kitaev et al. 2020, section 2.
    """
    rank = buckets.argsort(dim=-1, stable=True).argsort(dim=-1)  # the token's index in the sorted sequence
    apart = (rank // chunk)[..., :, None] - (rank // chunk)[..., None, :]
    same_bucket = buckets[..., :, None] == buckets[..., None, :]
    meets = (same_bucket & ((apart == 0) | (apart == 1))).any(dim=1)  # in at least one round
    itself = torch.eye(q.shape[1], dtype=torch.bool, device=q.device)
    meets = meets & ~itself
    meets = meets | (itself & ~meets.any(-1, keepdim=True))  # a token attends to itself only if it meets no other
    keys = q / q.norm(dim=-1, keepdim=True)
    return attend(q @ keys.mT / math.sqrt(q.shape[-1]), v, meets)[0]


class LSHAttention(Mechanism):
    """Attention within the buckets of a locality-sensitive hash, for queries that are also the keys.

    A call passes the same tensor as ``q`` and ``k`` (``MultiHeadAttention(share_query_key=True)`` does so). Keys are
    brought to unit length; the score is ``scale · q·k/|k|``, with 1/√D by default as everywhere (the authors' code has
    1). There are ``rounds`` hashes, each into ``num_buckets`` buckets, by default as many as let a bucket hold
    ``bucket_size`` tokens on average. ``bucket_size`` is also the length of a chunk. Time and memory grow with
    ``rounds · T · bucket_size``.

    Token i sees token j where a round puts both into one bucket, and j into i's chunk or the one before. Under
    ``causal`` it sees the last ``bucket_size`` tokens before it in its bucket instead, which these two chunks hold:
    where chunks begin depends on the hashes of later tokens. A pair counts once, however many rounds let it meet. A
    token sees itself only if it sees nothing else.

    A token that ``mask`` hides is in no bucket, and its own output is zeros. The hashes follow from ``seed`` alone:
    each call draws the same ones, for all rows and heads, until the attribute ``seed`` is set to another number. The
    default number of buckets depends on the length: to read the beginning of a sequence as within the whole, set it.

    Raises:
        ValueError: if a size is below 1, or the number of buckets is odd and above 1; in use, if the inputs break the
            contract, ``k`` is not ``q``, the mask differs between heads or queries, or a ``bias`` is given.

    Source: Kitaev et al. 2020, section 2 and appendix A; the hash after Andoni et al. 2015. That a chunk may not show
    where later tokens went is ours.
    """

    shared_only = True
    """That every call needs the same tokens as queries and as keys."""

    def __init__(
        self, *, bucket_size: int = 64, num_buckets: int | None = None, rounds: int = 4, seed: int = 0
    ) -> None:
        super().__init__()
        check_integer("bucket_size", bucket_size)
        check_integer("rounds", rounds)
        if num_buckets is not None:
            check_integer("num_buckets", num_buckets)
            if num_buckets > 1 and num_buckets % 2:
                raise ValueError(f"num_buckets: expected 1 or an even number, got {num_buckets}")
        self.bucket_size, self.num_buckets, self.rounds, self.seed = bucket_size, num_buckets, rounds, seed

    def attend(self, call: Call) -> Tensor:
        """Attend as the class says: ``q`` and ``k`` one tensor ``(B, H, T, D)``, ``v (B, H, T, Dv)``."""
        q, k, v, mask, bias, causal, scale = call
        if k is not q:
            raise ValueError("k: expected the same tensor as q, got another; queries and keys share one hash")
        if bias is not None:
            raise ValueError("bias: expected None, got one; pairs that no bucket holds are never scored")
        check_key_mask(mask)
        if q.numel() == 0 or v.numel() == 0:
            return q.new_zeros(*q.shape[:3], v.shape[3]) + 0 * (q.sum() + v.sum())
        with without_autocast(q):
            rows, values = (x.to(accum_dtype(q)).flatten(0, 1) for x in (q, v))
            length = rows.norm(dim=-1, keepdim=True)
            keys = rows / length.masked_fill(length == 0, math.inf)  # zero has no direction, and gets no gradient
            hidden = None if mask is None else ~mask.broadcast_to(*q.shape[:2], 1, q.shape[2]).reshape(rows.shape[:2])
            tokens = q.shape[2]
            layout = _sort(self.hash(keys), self._buckets(tokens), hidden, min(self.bucket_size, tokens), causal)
            out, alone = _Chunks.apply(rows, keys, values, layout, scale)
            out = torch.where(alone, values, out)
            if hidden is not None:
                out = out.masked_fill(hidden[..., None], 0.0)
        return out.to(q.dtype).unflatten(0, q.shape[:2])

    def _buckets(self, tokens: int) -> int:
        return self.num_buckets or max(1, 2 * round(tokens / (2 * self.bucket_size)))

    @torch.no_grad()
    def hash(self, x: Tensor) -> Tensor:
        """The bucket of each vector in each round, by the nearest of the axes of a random rotation and their opposites.

        Shapes: ``x (N, T, D)``; returns integers ``(N, rounds, T)`` below the number of buckets. Only directions count.
        """
        tokens, size = x.shape[1:]
        buckets = self._buckets(tokens)
        if buckets == 1:
            return torch.zeros(x.shape[0], self.rounds, tokens, dtype=torch.long, device=x.device)
        draw = torch.Generator().manual_seed(self.seed)
        draws = [torch.randn(size, buckets // 2, generator=draw, device="cpu") for _ in range(self.rounds)]
        axes = torch.stack(draws, 1).flatten(1).to(x.device, x.dtype, non_blocking=True)
        rotated = (x @ axes).unflatten(2, (self.rounds, -1))
        high, low = rotated.max(-1), rotated.min(-1)
        return torch.where(high.values >= -low.values, high.indices, low.indices + buckets // 2).mT.contiguous()


@dataclass(frozen=True)
class _Layout:
    """Where the sorted tokens lie: N · R rounds one after the other, each an empty chunk and then chunks of tokens.

    The empty chunk is what a round's first chunk looks back on, so that it does not look into the round before.
    ``tokens (P,)`` is the row of the token in each slot, among N · T; ``slots (N · T, R)`` is the way back. A query
    sees a key of its window in a round where its code is at least the key's and at most ``width`` above. ``codes
    (R, P)`` holds first the codes in the slot's own round, then those of the same tokens in the other rounds.
    """

    tokens: Tensor
    slots: Tensor
    codes: Tensor
    width: int
    chunk: int


@torch.no_grad()
def _sort(buckets: Tensor, last: int, hidden: Tensor | None, chunk: int, causal: bool) -> _Layout:
    """Sort tokens by bucket, then by position: ``buckets (N, R, T)``; ``hidden (N, T)`` go into a bucket ``last``.

    Codes count chunks, or slots under ``causal``, and leap by more than ``width`` from one bucket to the next.
    """
    batch, rounds, size = buckets.shape
    if hidden is not None:
        buckets = buckets.masked_fill(hidden[:, None], last)
    order = buckets.argsort(dim=-1, stable=True)
    each = torch.arange(size, device=buckets.device)
    rank = torch.empty_like(order).scatter_(-1, order, each.expand_as(order))
    width, step = (chunk, 1) if causal else (1, chunk)
    code = torch.add(rank // step, buckets, alpha=width + 1)
    top = size // step + (width + 1) * (last + 1)
    kind = torch.int16 if top + width < torch.iinfo(torch.int16).max else torch.int32
    row = (1 + -(-size // chunk)) * chunk  # an empty chunk, and those of one round
    start = torch.arange(chunk, batch * rounds * row, row, device=order.device).view(batch, rounds, 1)
    # Empty slots name the row's own first token: were it NaN, another's would make this row NaN, too.
    tokens = torch.arange(0, batch * size, size, device=order.device)[:, None, None].repeat(1, rounds, row)
    tokens[..., chunk : chunk + size].add_(order)
    # No query's code is as high as the code of an empty slot.
    codes = torch.full((rounds, *tokens.shape), torch.iinfo(kind).max, dtype=kind, device=order.device)
    code = code.to(kind)
    turned = torch.cat((code, code[:, :-1]), 1).unfold(1, rounds, 1).permute(1, 0, 3, 2)  # [i, :, r]: round r + i
    codes[..., chunk : chunk + size] = turned.gather(-1, order.expand_as(turned))
    slots = (start + rank).transpose(1, 2).flatten(0, 1)
    return _Layout(tokens.flatten(), slots, codes.flatten(1), width, chunk)


@dataclass(frozen=True)
class _ChunkedAttention:
    """One call on rows of tokens, ``q`` and ``k (N · T, D)`` and ``v (N · T, Dv)``, tile by tile of chunks."""

    q: Tensor
    k: Tensor
    v: Tensor
    layout: _Layout
    scale: float

    def forward(self) -> tuple[Tensor, Tensor]:
        """The output ``(N · T, Dv)``, and the log-sum-exp ``(N · T, 1)`` of what each token sees in all rounds."""
        slots = len(self.layout.tokens)
        out, each = self.v.new_zeros(slots, self.v.shape[1]), self.v.new_zeros(slots, 1)
        for here, window in self.tiles():
            scores, counts = self.scores(here, window)
            base = scores.amax(-1, keepdim=True)
            base.masked_fill_(base == -math.inf, 0.0)  # −inf − (−inf) would be NaN
            weights = exponential_(scores.sub_(base)).div_(counts)
            total = weights.sum(-1, keepdim=True)
            each[here] = (total.log() + base).flatten(0, 1)
            weighted = weights @ self.windows(self.v[self.layout.tokens[window]])
            out[here] = weighted.div_(total.masked_fill_(total == 0, 1.0)).flatten(0, 1)
        by_round = each[self.layout.slots]
        logsumexp = by_round.logsumexp(1)
        base = logsumexp.masked_fill(logsumexp == -math.inf, 0.0)
        return self.gather(out, (by_round - base[:, None]).exp()), logsumexp

    def backward(self, out: Tensor, logsumexp: Tensor, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of q, k and v.

        With the weights P of all rounds under one sum, and D the sum of dO ∘ O along each row: dV = Pᵀ dO,
        dP = dO Vᵀ, dS = P ∘ (dP − D), dQ = dS K, dK = dSᵀ Q. A pair that several rounds saw gets its share in each.
        """
        tokens, chunk = self.layout.tokens, self.layout.chunk
        d_total = (d_out * out).sum(-1, keepdim=True)
        base = logsumexp.masked_fill(logsumexp == -math.inf, 0.0)
        dq, dk, dv = (x.new_zeros(len(tokens), x.shape[1]) for x in (self.q, self.k, self.v))
        for here, window in self.tiles():
            scores, counts = self.scores(here, window)
            mine = tokens[here]
            weights = exponential_(scores.sub_(base[mine].unflatten(0, (-1, chunk)))).div_(counts)
            d_rows, rows = (x[mine].unflatten(0, (-1, chunk)) for x in (d_out, self.q))
            d_scores = d_rows @ self.windows(self.v[tokens[window]]).mT
            d_scores.sub_(d_total[mine].unflatten(0, (-1, chunk))).mul_(weights).mul_(self.scale)
            dq[here] = (d_scores @ self.windows(self.k[tokens[window]])).flatten(0, 1)
            for total, part in ((dv, weights.mT @ d_rows), (dk, d_scores.mT @ rows)):
                total[window][:-chunk] += part[:, :chunk].flatten(0, 1)
                total[window][chunk:] += part[:, chunk:].flatten(0, 1)
        return self.gather(dq), self.gather(dk), self.gather(dv)

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """The slots of some chunks, and of their windows: the same with one chunk before."""
        chunk, slots = self.layout.chunk, len(self.layout.tokens)
        step = chunk * max(1, tile_limit(SCORES, self.q.device) // (2 * chunk * chunk))
        for start in range(chunk, slots, step):  # the first chunk of all is empty
            stop = min(start + step, slots)
            yield slice(start, stop), slice(start - chunk, stop)

    def scores(self, here: slice, window: slice) -> tuple[Tensor, Tensor]:
        """Scores ``(chunks, chunk, 2 · chunk)``, −inf where a query sees nothing, and how many rounds see each pair."""
        layout, chunk = self.layout, self.layout.chunk
        rows = (self.q[layout.tokens[here]] * self.scale).unflatten(0, (-1, chunk))
        scores = rows @ self.windows(self.k[layout.tokens[window]]).mT
        visible = self.meet(layout.codes[0], here, window)
        visible.diagonal(chunk, 1, 2).fill_(False)  # the token itself
        scores.masked_fill_(visible.logical_not_(), -math.inf)
        counts = torch.ones(scores.shape, dtype=torch.uint8, device=scores.device)  # the pair's own round
        for codes in layout.codes[1:]:
            counts.add_(self.meet(codes, here, window))
        return scores, counts

    def meet(self, codes: Tensor, here: slice, window: slice) -> Tensor:
        """Which keys of the window each query sees in the round of these codes."""
        apart = codes[here].unflatten(0, (-1, self.layout.chunk))[:, :, None] - self.windows(codes[window])[:, None]
        return (apart >= 0).logical_and_(apart <= self.layout.width)

    def windows(self, x: Tensor) -> Tensor:
        """What each chunk but the first looks at, itself and the one before: ``(chunks, 2 · chunk, …)``, a view."""
        chunk, tail = self.layout.chunk, x.shape[1:]
        inner = x.stride()
        shape = (len(x) // chunk - 1, 2 * chunk, *tail)
        return x.as_strided(shape, (chunk * inner[0], *inner))

    def gather(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """From slots back to tokens: the sum over rounds, ``(N · T, …)``; ``weights (N · T, R, 1)``."""
        total = torch.zeros(len(self.q), x.shape[1], dtype=x.dtype, device=x.device)
        for number, slots in enumerate(self.layout.slots.unbind(1)):
            part = x[slots]
            total += part if weights is None else part.mul_(weights[:, number])
        return total


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, layout: _Layout, scale: float) -> tuple[Tensor, Tensor]:
        rows = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        out, logsumexp = _ChunkedAttention(*rows, layout, scale).forward()
        ctx.settings = layout, scale
        ctx.save_for_backward(*rows, out, logsumexp)
        alone = (logsumexp == -math.inf).view(*q.shape[:2], 1)
        ctx.mark_non_differentiable(alone)
        return out.view_as(v), alone

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        *rows, out, logsumexp = ctx.saved_tensors
        with without_autocast(d_out):
            gradients = _ChunkedAttention(*rows, *ctx.settings).backward(out, logsumexp, d_out.flatten(0, 1))
        return *(x.view(*d_out.shape[:2], -1) for x in gradients), None, None
