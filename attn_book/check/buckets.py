"""A check of buckets by a hash."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_PAGE = "chapters/13_sparse"
_HASHING = (_PAGE, "Hashing")


# Who shares a bucket in some round.


def _hash_cases(draw: Inputs) -> Iterator[Case]:
    size, tokens = draw.whole(5, 8), draw.whole(24, 30)
    x, directions = draw.normal(tokens, size), draw.normal(draw.whole(2, 3), size, 3)
    yield Case("one round", (x, directions[:1]))
    yield Case("several rounds", (x, directions))
    yield Case("vectors and their opposites", (torch.cat([x[:8], -x[:8]]), directions), edge=True)
    yield Case("two buckets", (x, directions[:, :, :1]), edge=True)
    yield Case("one token", (x[:1], directions), edge=True)


def _hashed(x: Tensor, directions: Tensor) -> Tensor:
    """The bucket of each vector in each round, (R, n)."""
    turned = x @ directions
    return torch.cat([turned, -turned], -1).argmax(-1)


def _equal(buckets: Tensor) -> Tensor:
    """Which pairs share a bucket, round by round, (R, n, n)."""
    return buckets[:, :, None] == buckets[:, None]


def _others(met: Tensor) -> Tensor:
    return met & ~torch.eye(met.shape[-1], dtype=torch.bool)


met = Check(
    "met",
    answer=lambda x, directions: _others(_equal(_hashed(x, directions)).any(0)),
    cases=_hash_cases,
    misconceptions=[
        Misconception(
            lambda x, directions: _others(_equal(_hashed(x, directions)).all(0)),
            "a pair must share its bucket in every round",
            "Each further round is another chance to meet: sharing a bucket in one round is enough.",
            _HASHING,
        ),
        Misconception(
            lambda x, directions: _others(_equal((x @ directions).argmax(-1)).any(0)),
            "the opposite directions are left out",
            "A bucket is a direction with its sign; b/2 directions make b buckets.",
            _HASHING,
        ),
        Misconception(
            lambda x, directions: _others(_equal((x @ directions).abs().argmax(-1)).any(0)),
            "the sign of the product is dropped",
            "Then a vector and its opposite always share a bucket, although no two vectors are further apart.",
            _HASHING,
        ),
        Misconception(
            lambda x, directions: _equal(_hashed(x, directions)).any(0),
            "a token is paired with itself",
            "A token always shares its own bucket, so its own key is left out.",
            _HASHING,
        ),
        Misconception(
            lambda x, directions: _others(
                ((x @ directions)[:, :, None] > 0).eq((x @ directions)[:, None] > 0).all(-1).any(0)
            ),
            "the bucket is made of the signs of all products",
            "That is another hash. In this one, the bucket is the direction with the largest product.",
            _HASHING,
        ),
        Misconception(
            lambda x, directions: _others(_equal(_hashed(x, directions)[-1:]).any(0)),
            "only the last round is kept",
            "Combine the rounds: a pair counts if it shared a bucket in any of them.",
            _HASHING,
        ),
    ],
    hints=[
        "x @ directions is (R, n, b/2). Put its negative beside it, and take the argmax over the last axis.",
        "buckets[:, :, None] == buckets[:, None] compares all pairs, round by round.",
        "Take any over the rounds, and set the diagonal to False.",
    ],
)
