"""The race of `recorded/recurrent.py` for the other mechanisms of the book that can be causal.

Task, model and training are imported from there, and only what a layer does with its queries, keys and values differs.
Four kinds keep a state of fixed size, of about as many numbers as the 16 × 16 of the recurrent models: a window of 8
tokens; a window of 6 with the first 2 tokens, the sinks; elu + 1 features, and 16 random features, each with their sum.
Two keep all tokens, as full attention does, but a query reads at most 8 keys: those that two hashes put together with
it, or those of its own block and of the best earlier one.

What leaves pairs out is full attention, with its slope, under a mask: it differs from `full` in the pairs alone.
"""

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_core import LinearAttention, LSHAttention, Performer, attention
from recorded import recurrent

SEEDS = recurrent.SEEDS
RATES = recurrent.RATES
TASKS = recurrent.TASKS
KEYS_READ, SINKS, BLOCK, ROUNDS = 8, 2, 4, 2
FEATURES = recurrent.HEAD_DIM
KINDS = ("window", "window and sinks", "elu + 1", "Performer", "hashing", "block selection")


class Layer(recurrent.Layer):
    """The same layer, with a mechanism of chapter 13 or 14."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.performer = Performer(recurrent.HEAD_DIM, FEATURES)
        self.calls = 0

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        """The mechanism."""
        if self.kind == "elu + 1":
            return LinearAttention()(q, k, v, causal=True)
        if self.kind == "Performer":
            return self.performer(q, k, v, causal=True)
        bias, scale = self.slope * recurrent.distances(x.shape[1]), None
        if self.kind == "hashing":
            # Queries are keys, brought to length 1; the authors' scale; in training, other hashes in each step.
            self.calls += self.training
            k, scale = functional.normalize(q, dim=-1), 1.0
            mask = hashed(k, BLOCK, ROUNDS, seed=self.calls)
        elif self.kind == "block selection":
            mask = selected(q @ k.mT + bias, BLOCK)
        else:
            mask = near(x.shape[1], SINKS if "sinks" in self.kind else 0)
        return attention(q, k, v, mask=mask, bias=bias, causal=True, scale=scale)


def near(tokens: int, sinks: int) -> Tensor:
    """The last keys up to a query's own, and the first ones: ``(T, T)``, `KEYS_READ` for each query at most."""
    return (recurrent.distances(tokens) > sinks - KEYS_READ) | (torch.arange(tokens) < sinks)


@torch.no_grad()
def hashed(keys: Tensor, size: int, rounds: int, seed: int) -> Tensor:
    """Whom each token meets in `LSHAttention`, under a causal mask: ``(B, 1, T, T)`` for ``keys (B, 1, T, D)``."""
    buckets = LSHAttention(bucket_size=size, rounds=rounds, seed=seed).hash(keys[:, 0])  # (B, rounds, T)
    same = (buckets[..., :, None] == buckets[..., None, :]).tril(-1)
    last = same.flip(-1).cumsum(-1).flip(-1) <= size  # no more than so many of the bucket from this key on
    meets = (same & last).any(1, keepdim=True)
    return meets | (torch.eye(keys.shape[2], dtype=torch.bool) & ~meets.any(-1, keepdim=True))


@torch.no_grad()
def selected(scores: Tensor, size: int) -> Tensor:
    """The keys of a query's own block, and of the earlier one with the greatest mean score: as ``scores (B, 1, T, T)``.

    `BlockSelection` scores blocks without the slope, which it does not know.
    """
    tokens = scores.shape[-1]
    blocks = torch.arange(tokens) // size
    whole = tokens // size
    means = scores[..., : whole * size].unflatten(-1, (whole, size)).mean(-1)
    means = means.masked_fill(torch.arange(whole) >= blocks[:, None], -torch.inf)
    best = torch.where(means.isfinite().any(-1), means.argmax(-1), blocks)
    return (blocks == best[..., None]) | (blocks == blocks[:, None])


def run(folder: Path) -> dict[str, Any]:
    """Each kind on each task."""
    makers = {kind: functools.partial(recurrent.Model, (kind, kind), Layer) for kind in KINDS}
    sizes = {"keys_read": KEYS_READ, "sinks": SINKS, "block": BLOCK, "rounds": ROUNDS, "features": FEATURES}
    return {"kinds": KINDS, "rates": RATES, "mechanisms": sizes, "runs": recurrent.race(makers, TASKS, RATES, SEEDS)}
