"""Reformer's attention: each query reads the keys that random hashes put near it, in O(n log n) instead of O(n²).

In each of several rounds, tokens are hashed into buckets and sorted by bucket, and the sorted sequence is cut into
chunks: a token attends to the tokens of its bucket in its own chunk and the one before. Over all rounds together, the
output is exactly softmax attention over the pairs that meet in at least one round.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.contract import Call, Mechanism, accum_dtype, check_integer, four_axes, without_autocast

ITSELF = -1e20
"""The score of a token with itself, so low that it counts only if it sees no other."""


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
    if a beginning is to be read as it is in the whole sequence. A call takes no bias, and a mask that hides the same
    keys from all heads and queries.

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
            order = buckets.argsort(dim=-1, stable=True)  # by bucket, and then by position
            place = order.argsort(dim=-1)
            chunk = min(self.bucket_size, tokens)
            # In a round, a query sees the keys whose code is its own or up to ``reach`` less. Codes leap by more than
            # that from one bucket to the next, and from 0, which stands for an empty slot.
            reach = chunk if causal else 1
            codes = (reach + 1) * (buckets + 1) + (place if causal else place // chunk)
            found = [
                self._round(rows * scale, keys, values, codes[:, : n + 1], order[:, n], place[:, n], reach)
                for n in range(self.rounds)
            ]
            outs, sums = (torch.stack(x, -1) for x in zip(*found, strict=True))
            out = (outs * sums.softmax(-1).unsqueeze(-2)).sum(-1).to(q.dtype).view(*q.shape[:3], -1)
            return out if hidden is None else out.masked_fill(hidden.mT, 0.0)

    def _round(
        self, q: Tensor, k: Tensor, v: Tensor, codes: Tensor, order: Tensor, place: Tensor, reach: int
    ) -> tuple[Tensor, Tensor]:
        """What tokens get from those that they first meet in this round, and the log-sum-exp of these scores.

        Shapes: ``q (N, T, D)``, ``k (N, T, D)``, ``v (N, T, Dv)``; ``codes (N, n, T)`` of the rounds up to this one;
        this round's ``order (N, T)``, the token in each slot, and ``place (N, T)``, the slot of each token. Returns
        ``(N, T, Dv)`` and ``(N, T)``.
        """
        tokens = order.shape[1]
        chunk = min(self.bucket_size, tokens)
        row = torch.arange(len(order), device=order.device)[:, None]

        def sort(x: Tensor) -> Tensor:  # (N, T, ·) to (N, C, chunk, ·), filled with zeros
            return functional.pad(x[row, order], (0, 0, 0, -tokens % chunk)).unflatten(1, (-1, chunk))

        def look(x: Tensor) -> Tensor:  # each chunk after the one before it: (N, C, 2 · chunk, ·)
            return torch.cat((functional.pad(x, (0, 0, 0, 0, 1, 0))[:, :-1], x), 2)

        by_slot = sort(codes.mT)
        ahead = by_slot.movedim(3, 0).unsqueeze(4) - look(by_slot).movedim(3, 0).unsqueeze(3)
        met = (ahead >= 0) & (ahead <= reach)  # (n, N, C, chunk, 2 · chunk)
        counts = met[-1] & ~met[:-1].any(0)  # a pair counts in the first round in which it meets
        slot = torch.arange(2 * chunk, device=order.device)
        scores = (sort(q) @ look(sort(k)).mT).masked_fill(~counts, -math.inf)
        scores = scores.masked_fill(slot == slot[chunk:, None], ITSELF)
        out, logsumexp = scores.softmax(-1) @ look(sort(v)), scores.logsumexp(-1)
        return out.flatten(1, 2)[row, place], logsumexp.flatten(1, 2)[row, place]

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
