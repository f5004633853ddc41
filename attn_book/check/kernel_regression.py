"""Checks of a leave-one-out estimate, and the gradient with respect to the scores."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.mechanisms.dense import masked_softmax as right_softmax

_PAGE = "chapters/01_pooling"
_AVERAGE = (_PAGE, "From the average to a weighted average")
_WIDTH = (_PAGE, "Learning the bandwidth")
_MASKS = (_PAGE, "Masking")
_GRADIENT = (_PAGE, "The gradient of the softmax")


# Each reading, guessed from the others.


def _reading_cases(draw: Inputs) -> Iterator[Case]:
    for name in ("a few readings", "other readings"):
        count = draw.whole(6, 12)
        positions = torch.arange(count) + 0.5 * draw.uniform(count)
        yield Case(name, (positions, 50 + 10 * draw.normal(count), 1.5 + float(draw.uniform())))
    yield Case("a single reading", (draw.uniform(1), 50 + draw.normal(1), 2.0), edge=True)
    apart = 100 * torch.arange(5) + 20 * draw.uniform(5)
    yield Case("readings that lie far apart", (apart, 50 + 10 * draw.normal(5), 1.5), edge=True)


def _bumps(positions: Tensor, width: float) -> Tensor:
    return -((positions[:, None] - positions) ** 2) / (2 * width**2)


def _others(positions: Tensor) -> Tensor:
    return ~torch.eye(len(positions), dtype=torch.bool)


def _from_others(positions: Tensor, readings: Tensor, width: float, sign: int = 1) -> Tensor:
    return right_softmax(sign * _bumps(positions, width), _others(positions)) @ readings


def _plain(positions: Tensor, readings: Tensor, width: float) -> Tensor:
    raised = _bumps(positions, width).exp() * _others(positions)
    return raised @ readings / raised.sum(-1)


def _nearest(positions: Tensor, readings: Tensor, width: float) -> Tensor:
    return readings[_bumps(positions, width).masked_fill(~_others(positions), -math.inf).argmax(-1)]


leave_one_out = Check(
    "leave_one_out",
    answer=_from_others,
    cases=_reading_cases,
    misconceptions=[
        Misconception(
            lambda positions, readings, width: _bumps(positions, width).softmax(-1) @ readings,
            "a reading takes part in its own estimate",
            "A reading is its own nearest neighbour, so a narrower bump always seems better, and the error says "
            "nothing.",
            _WIDTH,
        ),
        Misconception(
            lambda positions, readings, width: (_bumps(positions, width).softmax(-1) * _others(positions)) @ readings,
            "a reading's weight on itself is removed after the softmax",
            "It has already taken its share, and the weights on the others add up to less than one.",
            _MASKS,
        ),
        Misconception(
            lambda positions, readings, width: _from_others(positions, readings, width / math.sqrt(2)),
            "the 2 below the square is missing",
            "The scores are −(q − k)² / 2h².",
            _AVERAGE,
        ),
        Misconception(
            lambda positions, readings, width: _from_others(positions, readings, math.sqrt(width)),
            "the width is not squared",
            "Distances are measured in widths, and then squared: −(q − k)² / 2h².",
            _AVERAGE,
        ),
        Misconception(
            lambda positions, readings, width: _from_others(positions, readings, width, -1),
            "the minus before the square is missing",
            "Readings far away then count most.",
            _AVERAGE,
        ),
        Misconception(
            lambda positions, readings, width: _from_others(positions, readings, 1e6),
            "all other readings have the same weight",
            "That is the average: the width is not used.",
            _AVERAGE,
        ),
        Misconception(
            _nearest,
            "only the nearest other reading counts",
            "That is a dictionary lookup, the limit of a very narrow bump.",
            _AVERAGE,
        ),
        Misconception(
            lambda positions, readings, width: (
                _bumps(positions, width).masked_fill(~_others(positions), -math.inf).softmax(-1) @ readings
            ),
            "a single reading, without others, is not handled",
            "Its softmax is 0/0. A sum over no readings is 0.",
            _MASKS,
        ),
        Misconception(
            _plain,
            "the bumps are exponentials divided by their sum",
            "Far from all others each of them is 0 as a float, and 0/0 is NaN. A softmax subtracts the greatest first.",
            _AVERAGE,
        ),
    ],
    hints=[
        "positions[:, None] - positions holds all distances, each reading's from itself on the diagonal.",
        "Fill the diagonal of the scores with −∞, then take the softmax over the last axis.",
        "A single reading has no others: its row is empty, and its estimate is 0.",
    ],
)


# The gradient of an attention with respect to its scores.


def _gradient_cases(draw: Inputs) -> Iterator[Case]:
    queries, keys, size = draw.whole(2, 5), draw.whole(6, 9), draw.whole(3, 5)
    weights = draw.normal(queries, keys).softmax(-1)
    values, upstream = draw.normal(keys, size), draw.normal(queries, size)
    yield Case("a single query", (weights[:1], values, upstream[:1]))
    yield Case("several queries", (weights, values, upstream))
    emptied = weights * (torch.arange(queries) > 0)[:, None]
    yield Case("a query without weights", (emptied, values, upstream), edge=True)
    many = (draw.normal(2, 3, queries, keys).softmax(-1), draw.normal(2, 3, keys, size))
    yield Case("four axes", (*many, draw.normal(2, 3, queries, size)), edge=True)


def _through(weights: Tensor, reward: Tensor) -> Tensor:
    return weights * (reward - (weights * reward).sum(-1, keepdim=True))


score_gradient = Check(
    "score_gradient",
    answer=lambda weights, values, upstream: _through(weights, upstream @ values.mT),
    cases=_gradient_cases,
    misconceptions=[
        Misconception(
            lambda weights, values, upstream: upstream @ values.mT,
            "the result is the gradient with respect to the weights",
            "One step is missing: the softmax.",
            _GRADIENT,
        ),
        Misconception(
            lambda weights, values, upstream: weights * (upstream @ values.mT),
            "the term −α αᵀ of the softmax's Jacobian is missing",
            "Raising all scores of a row by the same amount changes no weight, so each row of the gradient adds "
            "up to 0.",
            _GRADIENT,
        ),
        Misconception(
            lambda weights, values, upstream: weights * (1 - weights) * (upstream @ values.mT),
            "only the diagonal of the Jacobian is used, α(1 − α)",
            "Each weight also depends on all other scores of its row.",
            _GRADIENT,
        ),
        Misconception(
            lambda weights, values, upstream: weights * (upstream @ (values - values.mean(-2, keepdim=True)).mT),
            "the plain mean of the values is subtracted",
            "It must be the weighted mean, which is the query's output.",
            _GRADIENT,
        ),
        Misconception(
            lambda weights, values, upstream: -_through(weights, upstream @ values.mT),
            "the sign is reversed",
            "A larger score must give a larger weight.",
            _GRADIENT,
        ),
        Misconception(
            lambda weights, values, upstream: _through(weights, upstream @ values.mT) / math.sqrt(values.shape[-1]),
            "the gradient is divided by √d",
            "The scale belongs to the step from the scores back to the queries.",
            _GRADIENT,
        ),
    ],
    hints=[
        "The output is weights @ values. What is the gradient with respect to the weights?",
        "It is g = upstream @ values.mT. The softmax's Jacobian turns it into α (g − Σ α g).",
    ],
)
