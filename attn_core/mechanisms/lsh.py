"""Reformer's attention: each query reads the keys that random hashes put near it, in O(n log n) instead of O(n²).

In each of several rounds, tokens are hashed into buckets and sorted by bucket, and the sorted sequence is cut into
chunks: a token attends to the tokens of its bucket in its own chunk and the one before. Over all rounds together, the
output is exactly softmax attention over the pairs that meet in at least one round.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.contract import Call, Mechanism, accum_dtype, check_integer, four_axes, without_autocast
from attn_core.derivatives import first_order, refuse_transforms
from attn_core.device import in_tiles, tile_limit
from attn_core.mechanisms.online import exponential_

SCORES = 2**18
"""Scores in a tile: 1 MiB of float32, which stays in a cache."""
ITSELF, NEVER = -1e20, -1e30
"""The score of a token with itself, so low that it counts only if it sees no other; and what hides a pair."""


class LSHAttention(Mechanism):
    """Attention within the buckets of a locality-sensitive hash, for queries that are also the keys.

    A call passes the same tensor as ``q`` and ``k`` (``MultiHeadAttention(share_query_key=True)`` does so). Keys are
    brought to unit length; the score is ``scale · q·k/|k|`` (the authors' code has a scale of 1). There are ``rounds``
    hashes, each into ``num_buckets`` buckets, by default as many as let a bucket hold ``bucket_size`` tokens on
    average. ``bucket_size`` is also the length of a chunk. Time and memory grow with ``rounds · T · bucket_size``.

    Token i sees token j where a round puts both into one bucket, and j into i's chunk or the one before. Where chunks
    begin depends on later tokens, so under ``causal`` it sees the last ``bucket_size`` tokens before it in its bucket
    instead. A pair counts once, however many rounds let it meet. A token sees itself only if it sees nothing else.

    A token that ``mask`` hides is in no bucket, and its own output is zeros. The hashes follow from ``seed`` alone:
    each call draws the same ones, for all rows and heads. The default number of buckets depends on the length: set it
    if a beginning is to be read as it is in the whole sequence. There are no derivatives beyond the first. A call takes
    no bias, and a mask that hides the same keys from all heads and queries.

    Source: Kitaev et al. 2020, section 2 and appendix A; the hash after Andoni et al. 2015. The rule for ``causal`` is
    ours.
    """

    shared_only = True
    """Whether every call needs the same tokens as queries and as keys."""

    def __init__(
        self, *, bucket_size: int = 64, num_buckets: int | None = None, rounds: int = 4, seed: int = 0
    ) -> None:
        super().__init__()
        check_integer("bucket_size", bucket_size)
        check_integer("rounds", rounds)
        check_integer("seed", seed, at_least=0)
        if num_buckets is not None:
            check_integer("num_buckets", num_buckets)
            if num_buckets > 1 and num_buckets % 2:
                raise ValueError(f"num_buckets: expected 1 or an even number, got {num_buckets}")
        self.bucket_size, self.num_buckets, self.rounds, self.seed = bucket_size, num_buckets, rounds, seed

    def attend(self, call: Call) -> Tensor:
        """Attend as the class says."""
        q, k, v, mask, _, causal, scale = call
        refuse_transforms("LSHAttention", q, v, mask)
        if k is not q:
            raise ValueError("k: expected the same tensor as q, got another; queries and keys share one hash")
        call.refuse_pairs()
        if q.numel() == 0 or v.numel() == 0:
            return q.new_zeros(*q.shape[:3], v.shape[3]) + 0 * (q.sum() + v.sum())
        with without_autocast(q):
            rows, values = (x.to(accum_dtype(q)).flatten(0, 1) for x in (q, v))
            # Zero has no direction, and gets no gradient.
            keys = rows / functional.threshold(rows.norm(dim=-1, keepdim=True), 0.0, math.inf)
            hidden = None if mask is None else ~four_axes(mask)
            buckets, tokens = self.hash(keys), q.shape[2]
            if hidden is not None:
                buckets = buckets.unflatten(0, q.shape[:2]).masked_fill(hidden, self._buckets(tokens)).flatten(0, 1)
            layout = _sort(buckets, self._buckets(tokens), min(self.bucket_size, tokens), causal)
            x, sizes = torch.cat((rows, keys, values), -1).flatten(0, 1), (q.shape[3], q.shape[3], v.shape[3])
            out = first_order("LSHAttention", _Chunks, x, sizes, layout, scale).to(q.dtype).view(*q.shape[:3], -1)
            return out if hidden is None else out.masked_fill(hidden.mT, 0.0)

    def _buckets(self, tokens: int) -> int:
        return self.num_buckets or max(1, 2 * round(tokens / (2 * self.bucket_size)))

    @torch.no_grad()
    def hash(self, x: Tensor) -> Tensor:
        """The bucket ``(N, rounds, T)`` of each vector of ``x (N, T, D)``: the nearest axis of a random rotation."""
        tokens, size = x.shape[1:]
        buckets = self._buckets(tokens)
        if buckets == 1:
            return torch.zeros(x.shape[0], self.rounds, tokens, dtype=torch.long, device=x.device)
        axes = _axes(self.seed, self.rounds, size, buckets // 2).to(x.device, x.dtype, non_blocking=True)
        return (x @ axes).unflatten(2, (self.rounds, -1)).argmax(-1).mT.contiguous()


def _axes(seed: int, rounds: int, size: int, count: int) -> Tensor:
    """The axes of each round's random rotation, in both directions: ``(size, rounds · 2 · count)``."""
    return torch.from_numpy(_drawn(seed, rounds, size, count))


# A generator cannot be traced. This is what torch.compiler.assume_constant_result does, without importing the compiler.
_axes._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.lru_cache(8)
def _drawn(seed: int, rounds: int, size: int, count: int) -> Any:
    """``_axes`` as an array: a tensor that is made while PyTorch traces must not be kept."""
    draw = torch.Generator().manual_seed(seed)
    axes = [torch.randn(size, count, generator=draw, device="cpu") for _ in range(rounds)]
    return torch.cat([x for one in axes for x in (one, -one)], 1).numpy()


@dataclass(frozen=True)
class _Layout:
    """Where the sorted tokens lie: in each round an empty chunk, on which its first chunk looks back, then its tokens.

    ``tokens (P,)`` is the row of the token in each slot, among N · T; ``slots (N · T, R)`` is the inverse: each token's
    slot in each round, counted from the second chunk on. In a round, a query sees a key of its window if its code is
    the key's or at most ``width`` more. The last row of ``codes (R + 1, P)`` has codes of the slot's own round, those
    before it the token's in earlier rounds, or −inf if there are no more or the slot is empty.
    """

    tokens: Tensor
    slots: Tensor
    codes: Tensor
    width: int
    chunk: int


@torch.no_grad()
def _sort(buckets: Tensor, last: int, chunk: int, causal: bool) -> _Layout:
    """Sort tokens by bucket, then by position: ``buckets (N, R, T)``, numbers up to ``last``.

    Codes count chunks, or slots under ``causal``, and leap by more than ``width`` from one bucket to the next.
    """
    batch, rounds, size = buckets.shape
    order = buckets.argsort(dim=-1, stable=True)
    rank = order.argsort(dim=-1)
    width = chunk if causal else 1
    exact = (width + 1) * (last + 1) + size < 2**24  # in float32
    code = torch.empty_like(rank, dtype=torch.float32 if exact else torch.float64)
    torch.add(rank if causal else rank // chunk, buckets, alpha=width + 1, out=code)
    earlier = functional.pad(code, (0, 0, rounds, 0), value=-math.inf).unfold(1, rounds + 1, 1).permute(3, 0, 1, 2)
    empty = chunk, -size % chunk
    codes = functional.pad(earlier.gather(-1, order.expand_as(earlier)), empty, value=-math.inf).flatten(1)
    # An empty slot names the first token of its own row, so that a NaN never spreads to another row.
    tokens = functional.pad(order, empty) + torch.arange(0, batch * size, size, device=order.device)[:, None, None]
    starts = torch.arange(0, tokens.numel(), tokens.shape[2], device=order.device).view(batch, 1, rounds)
    slots = (rank.mT + starts).flatten(0, 1)
    return _Layout(tokens.flatten(), slots, codes, width, chunk)


@dataclass(frozen=True)
class _Chunks:
    """One call on rows of tokens, q, k and v side by side in ``x (N · T, n)``, tile by tile of chunks."""

    x: Tensor
    sizes: tuple[int, int, int]
    layout: _Layout
    scale: float

    def forward(self) -> tuple[Tensor, Tensor]:
        """The output ``(N · T, Dv)``, and the log-sum-exp ``(N · T, R)`` of what a token sees in each round."""
        parts = []
        for here, window in self.tiles():
            q, k, v = self.x.index_select(0, self.layout.tokens[window]).split(self.sizes, 1)
            scores = self.scores(q, k, here, window)
            weights = scores.softmax(-1)
            fast = in_tiles(self.x.device)  # several times as fast on a CPU, but four launches
            logsumexp = scores.amax(-1) - weights.amax(-1).log() if fast else scores.logsumexp(-1)
            parts.append(((weights @ self.windows(v)).flatten(0, 1), logsumexp.flatten()))
        found, logsumexp = (x[0] if len(x) == 1 else torch.cat(x) for x in zip(*parts, strict=True))
        slots, by_round = self.layout.slots, logsumexp[self.layout.slots]
        out = functional.embedding_bag(slots, found, mode="sum", per_sample_weights=by_round.softmax(1))
        return out, by_round

    def backward(self, out: Tensor, by_round: Tensor, d_out: Tensor) -> tuple[Tensor]:
        """The gradients of q, k and v side by side.

        With the weights P = exp(S − base) / total of all rounds, and D the sum of dO ∘ O: dV = Pᵀ dO, dP = dO Vᵀ,
        dS = P ∘ (dP − D), dQ = dS K, dK = dSᵀ Q.
        """
        tokens, chunk = self.layout.tokens, self.layout.chunk
        base = by_round.amax(1, keepdim=True)
        total = (by_round - base).exp().sum(1, keepdim=True)
        by_token = base, total, (d_out * out).sum(-1, keepdim=True), d_out
        gradient = self.x.new_zeros(len(tokens), self.x.shape[1])  # for each slot
        dq, dk, dv = gradient.split(self.sizes, 1)
        for here, window in self.tiles():
            q, k, v = self.x.index_select(0, tokens[window]).split(self.sizes, 1)
            low, whole, d_sum, d_rows = (x.index_select(0, tokens[here]).unflatten(0, (-1, chunk)) for x in by_token)
            weights = exponential_(self.scores(q, k, here, window).sub_(low)).div_(whole)
            d_scores = (d_rows @ self.windows(v).mT).sub_(d_sum).mul_(weights).mul_(self.scale)
            dq[here] = (d_scores @ self.windows(k)).flatten(0, 1)
            rows = q[chunk:].unflatten(0, (-1, chunk))
            for to, part in ((dv, weights.mT @ d_rows), (dk, d_scores.mT @ rows)):
                to[window][:-chunk] += part[:, :chunk].flatten(0, 1)
                to[window][chunk:] += part[:, chunk:].flatten(0, 1)
        return (functional.embedding_bag(self.layout.slots, gradient[chunk:], mode="sum"),)  # summed over rounds

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """The slots of some chunks, and of their windows: the same with one chunk before."""
        chunk, slots = self.layout.chunk, len(self.layout.tokens)
        step = chunk * max(1, tile_limit(SCORES, self.x.device) // (2 * chunk * chunk))
        for start in range(chunk, slots, step):  # the first chunk of all is empty
            stop = min(start + step, slots)
            yield slice(start, stop), slice(start - chunk, stop)

    def scores(self, q: Tensor, k: Tensor, here: slice, window: slice) -> Tensor:
        """Scores ``(chunks, chunk, 2 · chunk)``, far below all others where a pair does not count in this round.

        A token's score with itself lies between the two, so that no row is without a score.
        """
        codes, chunk, half = self.layout.codes, self.layout.chunk, self.layout.width / 2
        queries = (codes[:, here].abs() - half).unflatten(1, (-1, chunk))
        # ``off`` is at most ``half`` if a round sees the pair. On a CPU, arithmetic is much faster than comparisons.
        off = (queries[..., None] - self.windows(codes[:, window], 1)[:, :, None]).abs_()
        # 0 if this round is the first that sees the pair: there it counts.
        unseen = torch.maximum(functional.softshrink(off[-1], half), half + 0.5 - off[:-1].amin(0))
        rows = q[chunk:].unflatten(0, (-1, chunk))
        scores = torch.baddbmm(unseen.to(q.dtype), rows, self.windows(k).mT, beta=NEVER, alpha=self.scale)
        scores.diagonal(chunk, 1, 2).fill_(ITSELF)
        return scores

    def windows(self, x: Tensor, axis: int = 0) -> Tensor:
        """What each chunk but the first looks at, itself and the one before: ``(…, chunks, 2 · chunk, …)``, a view."""
        chunk, shape, stride = self.layout.chunk, list(x.shape), list(x.stride())
        shape[axis : axis + 1] = [shape[axis] // chunk - 1, 2 * chunk]
        stride[axis : axis + 1] = [chunk * stride[axis], stride[axis]]
        return x.as_strided(shape, stride)
