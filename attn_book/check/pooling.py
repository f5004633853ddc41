"""Checks of weights from a kernel, and dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.mechanisms.dense import attention as right_attention

_PAGE = "chapters/01_pooling"
_AVERAGE = (_PAGE, "From the average to a weighted average")
_MASKS = (_PAGE, "Masking")
_SCALE = (_PAGE, "Why divide by √d?")
_ROLES = (_PAGE, "Queries, keys and values")


# Edge weights: the kernel max(0, 1 − u²).


def _edge_cases(draw: Inputs) -> Iterator[Case]:
    for width in (3.0, 8.0):
        queries, keys = draw.whole(2, 6), draw.whole(7, 12)
        # Keys a step apart and queries among them: somebody is always near.
        near = torch.arange(keys) + 0.5 * draw.uniform(keys)
        yield Case(
            f"{queries} queries, {keys} keys, width {width:g}", ((keys - 1) * draw.uniform(queries), near, width)
        )
    yield Case("a single key", (0.5 * draw.uniform(3), torch.zeros(1), 1.0), edge=True)


def _bump(queries: Tensor, keys: Tensor, width: float) -> Tensor:
    return (1 - ((queries[:, None] - keys) / width) ** 2).clamp(min=0)


def _share(bump: Tensor, axis: int = -1) -> Tensor:
    return bump / bump.sum(axis, keepdim=True)


edge_weights = Check(
    "edge_weights",
    answer=lambda queries, keys, width: _share(_bump(queries, keys, width)),
    cases=_edge_cases,
    misconceptions=[
        Misconception(
            _bump,
            "the kernel is not divided by its sum over the keys",
            "The weights of a query must add up to one; otherwise the estimate is not a mean.",
            _AVERAGE,
        ),
        Misconception(
            lambda queries, keys, width: _share(_bump(queries, keys, width), 0),
            "the sum for the division runs over the queries instead of the keys",
            "Then the weights of each key add up to one, and those of a query do not.",
            _AVERAGE,
        ),
        Misconception(
            lambda queries, keys, width: _share(1 - ((queries[:, None] - keys) / width) ** 2),
            "negative values are not set to zero",
            "The parabola continues below zero, so distant readings get negative weights.",
            _AVERAGE,
        ),
        Misconception(
            lambda queries, keys, width: _share(_bump(queries, keys, width)).mT.contiguous(),
            "the axes of the result are exchanged",
            "A row belongs to a query: the shape is (queries, keys).",
            _ROLES,
        ),
        Misconception(
            lambda queries, keys, width: _share(_bump(queries * width, keys * width, width)),
            "the distance is not divided by the width",
            "The width sets how far away a reading may be to count.",
            _AVERAGE,
        ),
        Misconception(
            lambda queries, keys, width: _share((1 - (queries[:, None] - keys).abs() / width).clamp(min=0)),
            "the distance is not squared",
            "That is the triangle 1 − |u|, another kernel.",
            _AVERAGE,
        ),
    ],
    hints=[
        "queries[:, None] - keys holds every distance: one row for each query.",
        "tensor.clamp(min=0) sets negative values to zero.",
        "Divide by the sum over the last axis, with keepdim=True.",
    ],
)


# The first attention.


def _attention_cases(draw: Inputs) -> Iterator[Case]:
    batch, queries, keys, size = draw.whole(2, 3), draw.whole(2, 4), draw.whole(5, 7), draw.whole(8, 12)
    q, k, v = (
        draw.normal(batch, queries, size),
        draw.normal(batch, keys, size),
        draw.normal(batch, keys, draw.whole(3, 6)),
    )
    every = torch.ones(batch, queries, keys, dtype=torch.bool)
    mask = draw.mask(batch, queries, keys)
    yield Case("inputs without a mask", (q, k, v, every))
    yield Case("inputs with a mask", (q, k, v, mask))
    without = mask & (torch.arange(queries) > 0)[:, None]
    yield Case("a query without any key to attend to", (q, k, v, without), edge=True)
    yield Case("large scores", (20 * q, 20 * k, v, mask), edge=True)


def _mixed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float | None = None) -> Tensor:
    return right_attention(q[:, None], k[:, None], v[:, None], mask=mask[:, None], scale=scale)[:, 0]


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


dot_product_attention = Check(
    "dot_product_attention",
    function="attention",
    answer=_mixed,
    cases=_attention_cases,
    misconceptions=[
        Misconception(
            lambda q, k, v, mask: _mixed(q, k, v, mask, scale=1.0),
            "the scores are not divided by √d",
            "They grow with the size of the vectors, and the softmax turns into a choice of one.",
            _SCALE,
        ),
        Misconception(
            lambda q, k, v, mask: _mixed(q, k, v, mask, scale=1 / q.shape[-1]),
            "the scores are divided by d, not by its root",
            "The variance of a product of d entries is d; its spread is √d.",
            _SCALE,
        ),
        Misconception(
            lambda q, k, v, mask: _mixed(q, k, v, mask, scale=1 / math.sqrt(k.shape[-2])),
            "the scores are divided by the root of the number of keys",
            "d is the size of a query, its last axis.",
            _SCALE,
        ),
        Misconception(
            lambda q, k, v, mask: _mixed(q, k, v, ~mask),
            "the mask is interpreted the other way round",
            "In this book, True means that a query may attend to the key.",
            _MASKS,
        ),
        Misconception(
            lambda q, k, v, mask: _scores(q, k).masked_fill(~mask, -math.inf).softmax(-2).nan_to_num(0.0) @ v,
            "the softmax runs over the queries instead of the keys",
            "The weights of a query must add up to one, and not those of a key.",
            _ROLES,
        ),
        Misconception(
            lambda q, k, v, mask: (_scores(q, k).softmax(-1) * mask) @ v,
            "the mask is multiplied in after the softmax",
            "The masked keys have already taken their share of the weights.",
            _MASKS,
        ),
        Misconception(
            lambda q, k, v, mask: _scores(q, k).masked_fill(~mask, -1e6).softmax(-1) @ v,
            "masked scores are set to a large negative number, such as −10⁶",
            "A query without any key to attend to then gets the mean of all values, masked ones included.",
            _MASKS,
        ),
        Misconception(
            lambda q, k, v, mask: _scores(q, k).masked_fill(~mask, -math.inf).softmax(-1) @ v,
            "a query without any key to attend to is not handled",
            "Its softmax is 0/0, and NaN spreads. Such a query gets zeros.",
            _MASKS,
        ),
    ],
    hints=[
        "Scores, weights, a mean: (B, T, d) times (B, d, S) gives (B, T, S); times (B, S, dv) it gives (B, T, dv).",
        "q @ k.mT / math.sqrt(q.shape[-1]), and masked scores filled with −∞ before the softmax over the last axis.",
        "A row without any True needs harmless scores, such as 0, before the softmax, and zeros after it.",
    ],
)
