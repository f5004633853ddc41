"""Attention in linear time: the exponential of a product, estimated by a product of random features (FAVOR+).

For w drawn from a standard normal distribution, exp(q·k) is the mean of exp(w·q − |q|²/2) · exp(w·k − |k|²/2). A sum
over keys then does not depend on the query: the keys are summed once for each feature, and each query reads the sums.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.contract import (
    Call,
    Mechanism,
    accum_dtype,
    check_flags,
    check_integer,
    kind,
    transformed,
    without_autocast,
)
from attn_core.device import in_tiles, tile_limit
from attn_core.mechanisms.dense import attend
from attn_core.mechanisms.linear import shares

CHUNK, CAUSAL_CHUNK, PAIRED = 512, 128, 16
"""How many keys or queries are summed at once; the same in a causal chunk; and pair by pair, in ``_scan``."""
SPREAD = 80.0
"""How many powers of 2 a feature of the keys may grow within a chunk: float32 reaches 2 ** −126, with 24 bits."""
LOWEST = -1e37
"""The logarithm of a sum over nothing. It is finite, since −inf − (−inf) would be NaN."""


class Performer(Mechanism):
    """Softmax attention estimated by ``features`` positive random features, in time linear in the length.

    The estimate of each exp(score) is positive and right on average. With q and k scaled by √scale each, its relative
    variance is about exp(|q + k|²) / features, so it is accurate for norms below 1, for example entries with a standard
    deviation of .25 at head size 64. At .5, 1024 features err about as much as uniform weights; at 1, far more.

    ``projection (features, D)`` is a buffer, drawn once and the same for all heads. With ``orthogonal=False`` its rows
    are independent, which estimates less accurately. A call takes no bias, and a mask that hides the same keys from all
    heads and queries (``masks.padding``).

    Source: Choromanski et al. 2021, lemma 1 (positive features), section 2.4 (orthogonal ones), appendix B (causal).
    """

    projection: Tensor

    def __init__(self, head_dim: int, features: int = 256, *, orthogonal: bool = True) -> None:
        super().__init__()
        check_integer("head_dim", head_dim)
        check_integer("features", features)
        check_flags(orthogonal=orthogonal)
        self.head_dim, self.features, self.orthogonal = head_dim, features, orthogonal
        self.register_buffer("projection", torch.empty(features, head_dim))
        self.redraw()

    @torch.no_grad()
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw other features, in place, from ``generator``, which is on the CPU, or from PyTorch's own."""
        draw = orthogonal_normal if self.orthogonal else torch.randn
        self.projection.copy_(draw(self.features, self.head_dim, generator=generator))

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """The output and the weights ``(B, H, T, S)``, step by step, through a tensor ``(B, H, T, S, features)``.

        In place of each score stands the logarithm of the estimate of its exponential.
        """
        self._check(call)
        with without_autocast(call.q):
            q, k, v = call.repeat_kv()
            projection = self.projection.to(q.dtype)
            q, k = q * math.copysign(math.sqrt(abs(call.scale)), call.scale), k * math.sqrt(abs(call.scale))
            # Logarithms of the features, each less ½ log of their number, so that a product is a mean.
            by_query, by_key = (
                x @ projection.mT - x.square().sum(-1, keepdim=True) / 2 - math.log(len(projection)) / 2 for x in (q, k)
            )
            scores = (by_query.unsqueeze(-2) + by_key.unsqueeze(-3)).logsumexp(-1)
            out, weights = attend(scores, v, call.visible)
        return out.to(call.q.dtype), weights.to(call.q.dtype)

    def attend(self, call: Call) -> Tensor:
        """The output alone: the same to rounding, in time and memory linear in T and S, on a CPU (see ``_scan``)."""
        q, k, v, mask, _, causal, scale = call
        if q.numel() == 0 or k.numel() == 0:  # nothing to sum: the explicit path's empty products are the zeros
            return self.attend_with_weights(call)[0]
        self._check(call)
        with without_autocast(q):
            q, k, v, projection = (x.to(accum_dtype(call.q)) for x in (q, k, v, self.projection))
            directions = projection * (math.sqrt(abs(scale)) * math.log2(math.e))
            hidden = None if mask is None else ~mask.expand(k.shape[0], 1, 1, k.shape[2]).mT
            keys = _Keys(directions, k, abs(scale), functional.pad(v, (0, 1), value=1.0), hidden)
            # The query heads of one key head stand one below the other, so that no key is repeated.
            rows = q.unflatten(1, (k.shape[1], -1))
            directions = directions if scale > 0 else -directions
            parts = _causal(directions, rows, keys) if causal else _full(directions, rows, keys)
            sums = (parts[0] if len(parts) == 1 else torch.cat(parts, dim=3)).flatten(1, 2)
            return shares(sums[..., :-1], sums[..., -1:]).to(call.q.dtype)

    def _check(self, call: Call) -> None:
        if call.q.shape[3] != self.head_dim:
            raise ValueError(f"q: expected head size {self.head_dim}, as the features', got {kind(call.q)}")
        call.refuse_pairs()


def orthogonal_normal(rows: int, columns: int, *, generator: torch.Generator | None = None) -> Tensor:
    """A random matrix ``(rows, columns)`` of standard normal rows, orthogonal within each block of ``columns`` rows.

    Source: Choromanski et al. 2021, section 2.4; Mezzadri 2007 (the signs that make the directions uniform).
    """
    blocks = torch.randn(-(-rows // columns), columns, columns, generator=generator)
    directions, upper = torch.linalg.qr(blocks)
    directions = directions * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    lengths = torch.randn(rows, columns, generator=generator).norm(dim=1, keepdim=True)
    return directions.mT.flatten(0, 1)[:rows] * lengths


@dataclass
class _Keys:
    """Keys, and sums over the keys so far: of each feature times the values, and of the feature itself.

    The product of a key and ``directions (m, D)`` is the base-2 logarithm of its features, but for the term |k|².
    ``sums (B, G, m, Dv + 1)`` are relative to ``highest (B, G, 1, m)``, the largest logarithm so far, which is added to
    the queries' logarithms. A query's largest feature is then scaled to 1. So the sum of its weights is at least 1
    (2 ** −SPREAD if ``highest`` comes from a later key of its chunk). The shifts cancel, and take no gradients.
    """

    directions: Tensor
    k: Tensor
    scale: float
    values: Tensor
    hidden: Tensor | None

    def __post_init__(self) -> None:
        leading, features = self.k.shape[:2], len(self.directions)
        self.highest = self.k.new_full((*leading, 1, features), LOWEST)
        self.sums = self.k.new_zeros(*leading, features, self.values.shape[3])

    def logarithms(self, keys: slice) -> Tensor:
        """The base-2 logarithms of the features of some keys, ``(B, G, n, m)``."""
        k = self.k[:, :, keys]
        length, half = torch.linalg.vector_norm(k, dim=-1, keepdim=True), self.scale * math.log2(math.e) / 2
        # Not in place, since vmap may batch a part of these alone.
        logarithms = torch.addcmul(functional.linear(k, self.directions), length, length, value=-half)
        return logarithms if self.hidden is None else logarithms.masked_fill(self.hidden[:, :, keys], -math.inf)

    def spread(self, logarithms: Tensor) -> float:
        """A bound of how much a feature's largest logarithm grows within these keys, of which a hidden one has −inf."""
        low = logarithms.detach()
        highest = torch.maximum(self.highest, low.amax(-2, keepdim=True))
        return float((highest - torch.maximum(self.highest, low.amin(-2, keepdim=True))).amax())

    def rebase(self, logarithms: Tensor) -> Tensor:
        """Make the sums relative to the largest logarithm, these keys included; return the keys' features, in place."""
        before, self.highest = self.highest, torch.maximum(self.highest, logarithms.detach().amax(-2, keepdim=True))
        self.sums = self.sums * torch.exp2(before - self.highest).mT
        return logarithms.sub_(self.highest).exp2_()

    def add_all(self, end: int) -> None:
        """Sum up the first ``end`` keys."""
        size = tile_limit(CHUNK, self.k.device)
        for begin in range(0, end, size):
            keys = slice(begin, min(begin + size, end))
            features = self.rebase(self.logarithms(keys))  # which rescales the sums
            self.sums = self.sums + features.mT @ self.values[:, :, keys]

    def query_features(self, directions: Tensor, q: Tensor) -> Tensor:
        """The features of queries ``(B, G, n, D)`` times 2 ** ``highest``, the largest of each query scaled to 1."""
        logarithms = functional.linear(q, directions) + self.highest
        return logarithms.sub_(logarithms.detach().amax(-1, keepdim=True)).exp2_()


def _full(directions: Tensor, q: Tensor, keys: _Keys) -> list[Tensor]:
    """What queries ``(B, G, R, T, D)`` read from all keys, in parts along T: ``(B, G, R, n, Dv + 1)``."""
    keys.add_all(keys.k.shape[2])
    parts = q.split(tile_limit(CHUNK, q.device), dim=3)
    return [(keys.query_features(directions, x.flatten(2, 3)) @ keys.sums).unflatten(2, x.shape[2:4]) for x in parts]


def _causal(directions: Tensor, q: Tensor, keys: _Keys) -> list[Tensor]:
    """As ``_full``, but each query reads the keys up to its own: earlier chunks by their sums, its own key by key.

    Within a chunk, features are relative to the chunk's largest. If a later key is so much larger that the earlier ones
    round to zero beside it, ``_scan`` sums the chunk. So it does where asking would wait for a device or is impossible.
    """
    queries, before = q.shape[3], keys.k.shape[2] - q.shape[3]
    first = min(max(-before, 0), queries)  # the queries that come before all keys
    parts = [q.new_zeros(*q.shape[:3], first, keys.values.shape[3])] if first else []
    keys.add_all(before + first)
    size = tile_limit(CAUSAL_CHUNK, q.device)
    for begin in range(first, queries, size):
        piece, seen = q[..., begin : begin + size, :], slice(begin + before, begin + before + size)
        logarithms, values = keys.logarithms(seen), keys.values[:, :, seen]
        if not in_tiles(q.device) or transformed() or keys.spread(logarithms) > SPREAD:
            by_query = functional.linear(piece, directions)
            out, keys.highest, keys.sums = _scan(by_query, logarithms, values, keys.highest, keys.sums)
            parts.append(out)
            continue
        by_key = keys.rebase(logarithms)
        by_query = keys.query_features(directions, piece.flatten(2, 3))
        own = (by_query @ by_key.mT).unflatten(2, piece.shape[2:4]).tril().flatten(2, 3)
        parts.append((by_query @ keys.sums + own @ values).unflatten(2, piece.shape[2:4]))
        keys.sums = keys.sums + by_key.mT @ values
    return parts


def _scan(by_query: Tensor, by_key: Tensor, values: Tensor, highest: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
    """What each query reads from the keys up to its own, ``(B, G, R, N, Dv)``; the new ``highest`` and ``sums``.

    ``by_query (B, G, R, N, m)`` and ``by_key (B, G, N, m)`` are base-2 logarithms of features, of any size. A query's
    features are relative to the largest logarithm that it sees itself. Within small chunks, exponents are computed pair
    by pair; the sums before each chunk come from one product with a matrix of chunks by chunks for each feature. With
    chunks of about the cube root of N, both take memory for about N ** (4 / 3) · m numbers a head.
    """
    tokens, size = by_key.shape[2], max(PAIRED, round(by_key.shape[2] ** (1 / 3)))
    if fill := -tokens % size:  # queries whose output is cut off, and hidden keys
        by_query, values = (functional.pad(x, (0, 0, 0, fill)) for x in (by_query, values))
        by_key = functional.pad(by_key, (0, 0, 0, fill), value=-math.inf)
    highest = torch.cat((highest.mT, by_key.detach().mT), -1).cummax(-1).values
    by_query = by_query - (by_query.detach() + highest[:, :, None, :, 1:].mT).amax(-1, keepdim=True)
    ends = highest[..., ::size]  # before each chunk, and after the last: (B, G, m, C + 1)
    by_query, by_key, values = (x.unflatten(-2, (-1, size)) for x in (by_query, by_key, values))
    later = torch.ones(size, size, dtype=torch.bool, device=values.device).triu(1)[..., None]
    pairs = (by_query[..., :, None, :] + by_key[:, :, None, :, None]).masked_fill_(later, -math.inf).exp2_()
    added = torch.exp2(by_key - ends[..., 1:].mT.unsqueeze(3)).mT @ values
    sums = torch.cat((sums.unsqueeze(3), added.transpose(2, 3)), 3)  # (B, G, m, C + 1, Dv)
    kept = (ends[..., None, :] - ends[..., None]).exp2_().tril()  # of sum j after chunk i
    sums = (kept @ sums).transpose(2, 3)
    read = torch.exp2(by_query + ends[..., :-1].mT[:, :, None, :, None]) @ sums[:, :, None, :-1]
    out = (pairs.sum(-1) @ values[:, :, None] + read).flatten(3, 4)[:, :, :, :tokens]
    return out, highest[..., -1:].mT, sums[:, :, -1]
