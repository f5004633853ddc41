"""Checks of buckets by a hash, and buckets that are learned."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_PAGE = "chapters/13_sparse"
_HASHING = (_PAGE, "Reformer: pairs found by hashing")


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


# Buckets that are learned.


def _cluster_cases(draw: Inputs) -> Iterator[Case]:
    size, count = draw.whole(3, 5), draw.whole(3, 4)
    x = functional.normalize(draw.normal(draw.whole(80, 99), size), dim=1)
    yield Case("one step", (x, x[:count].clone(), 1))
    yield Case("two steps", (x, x[-count:].clone(), 2))
    # All vectors lie close together, and the last centre points the other way.
    near = functional.normalize(torch.eye(size)[0] + 0.1 * draw.normal(20, size), dim=1)
    far = torch.cat([near[:2], -near[:1]])
    yield Case("a centre that no vector chooses", (near, far, 2), edge=True)


def _moved(x: Tensor, centres: Tensor, nearest: Tensor, *, unit: bool = True) -> Tensor:
    """Each centre becomes the mean of its vectors, normalised if ``unit``; a centre without vectors stays."""
    sums = torch.zeros_like(centres).index_add(0, nearest, x)
    counts = torch.bincount(nearest, minlength=len(centres))[:, None]
    means = functional.normalize(sums, dim=1) if unit else sums / counts.clamp(min=1)
    return torch.where(counts > 0, means, centres)


def _nearest(x: Tensor, centres: Tensor) -> Tensor:
    return (x @ centres.T).argmax(1)


def _learned(x: Tensor, centres: Tensor, steps: int, *, unit: bool = True) -> Tensor:
    for _ in range(steps):
        centres = _moved(x, centres, _nearest(x, centres), unit=unit)
    return centres


def _furthest(x: Tensor, centres: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        centres = _moved(x, centres, (x @ centres.T).argmin(1))
    return centres


def _divided(x: Tensor, centres: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        sums = torch.zeros_like(centres).index_add(0, _nearest(x, centres), x)
        centres = sums / sums.norm(dim=1, keepdim=True)
    return centres


def _erased(x: Tensor, centres: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        sums = torch.zeros_like(centres).index_add(0, _nearest(x, centres), x)
        centres = functional.normalize(sums, dim=1)
    return centres


k_means = Check(
    "k_means",
    answer=_learned,
    cases=_cluster_cases,
    misconceptions=[
        Misconception(
            lambda x, centres, steps: _learned(x, centres, steps, unit=False),
            "the means are not normalised to length 1",
            "Dot products compare directions only if all vectors have the same length.",
            _HASHING,
        ),
        Misconception(
            lambda x, centres, steps: _learned(x, centres, 1),
            "only one step is done",
            "After the centres have moved, some vectors belong to another one: assign them anew, and move again.",
            _HASHING,
        ),
        Misconception(
            lambda x, centres, steps: _learned(x, centres, steps + 1),
            "one step too many is done",
            "The centres must move exactly as often as the argument says.",
            _HASHING,
        ),
        Misconception(
            _furthest,
            "each vector goes to the centre with the smallest product",
            "A larger product means a smaller angle.",
            _HASHING,
        ),
        Misconception(
            _divided,
            "a centre that no vector chooses is not handled",
            "Its sum is 0, and 0/0 is NaN. Such a centre should stay where it is.",
            _HASHING,
        ),
        Misconception(
            _erased,
            "a centre that no vector chooses becomes 0",
            "The zero vector has no direction. Such a centre should stay where it is; it may be chosen later.",
            _HASHING,
        ),
    ],
    hints=[
        "(x @ centres.T).argmax(1) assigns each vector to a centre.",
        "torch.zeros_like(centres).index_add(0, nearest, x) sums the vectors of each centre.",
        "Normalise the sums (the mean has the same direction); where a sum is 0, keep the old centre.",
    ],
)
