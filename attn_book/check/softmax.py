"""Checks of chapter 1: the softmax, with a mask and backward."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.mechanisms.dense import masked_softmax as right_softmax

_PAGE = "chapters/01_attention_pooling"
_MASKS = (_PAGE, "What may not be looked at")
_SCALE = (_PAGE, "Why divide by √d?")


# A softmax among the allowed.


def _softmax_cases(draw: Inputs) -> Iterator[Case]:
    rows, keys = draw.whole(3, 6), draw.whole(4, 9)
    scores, mask = draw.normal(rows, keys), draw.mask(rows, keys)
    yield Case("scores with nothing hidden", (scores, torch.ones(rows, keys, dtype=torch.bool)))
    yield Case("scores of which some are hidden", (scores, mask))
    yield Case("scores 1000 times as large", (1000 * scores, mask), edge=True)
    yield Case("hidden scores of 1000", (scores.masked_fill(~mask, 1000.0), mask), edge=True)
    yield Case("a row that is all hidden", (scores, mask & (torch.arange(rows) > 0)[:, None]), edge=True)
    many = draw.normal(2, draw.whole(2, 3), rows, keys)
    yield Case("scores with four axes and one mask for all", (many, mask), edge=True)


def _plain(scores: Tensor, mask: Tensor) -> Tensor:
    """From exponentials alone, without subtracting a maximum."""
    raised = scores.exp() * mask
    return raised / raised.sum(-1, keepdim=True)


def _top_of_all(scores: Tensor, mask: Tensor) -> Tensor:
    raised = (scores - scores.amax(-1, keepdim=True)).exp() * mask
    return raised / raised.sum(-1, keepdim=True).clamp(min=1e-30)


softmax_with_mask = Check(
    "masked_softmax",
    answer=right_softmax,
    cases=_softmax_cases,
    misconceptions=[
        Misconception(
            lambda scores, mask: right_softmax(scores, ~mask),
            "the mask is read the other way round",
            "Here True means: may be looked at.",
            _MASKS,
        ),
        Misconception(
            lambda scores, mask: scores.softmax(-1) * mask,
            "the mask is multiplied in after the softmax",
            "What is hidden has already taken its share, and the rest no longer adds up to one.",
            _MASKS,
        ),
        Misconception(
            lambda scores, mask: (scores * mask).softmax(-1),
            "hidden scores are set to 0",
            "e⁰ is 1, so a hidden key still gets weight; it is the exponential that must be 0.",
            _MASKS,
        ),
        Misconception(
            lambda scores, mask: scores.masked_fill(~mask, -math.inf).softmax(-2).nan_to_num(0.0),
            "the softmax runs over the queries instead of the keys",
            "Weights add up to one along the last axis.",
            _MASKS,
        ),
        Misconception(
            lambda scores, mask: scores.masked_fill(~mask, -1e6).softmax(-1),
            "hidden scores are set to a large negative number, such as −10⁶",
            "Where a whole row is hidden all its scores are equal again, and it gets equal weights instead of none.",
            _MASKS,
        ),
        Misconception(
            lambda scores, mask: scores.masked_fill(~mask, -math.inf).softmax(-1),
            "hidden scores are −∞ and nothing is done about a row that is all hidden",
            "There −∞ − (−∞) is NaN. Such a row gets zeros.",
            _MASKS,
        ),
        Misconception(
            _plain,
            "no maximum is subtracted before the exponential",
            "e¹⁰⁰ is too large for a float, and ∞/∞ is NaN; a row that is all hidden becomes 0/0.",
            _MASKS,
        ),
        Misconception(
            _top_of_all,
            "the maximum that is subtracted is that of all scores, hidden ones too",
            "If a hidden score is far above the others, every allowed exponential becomes 0.",
            _MASKS,
        ),
    ],
    hints=[
        "Subtracting one number from all scores of a row changes no weight. Which makes the greatest exponential 1?",
        "It must be the greatest of the allowed scores. torch.where(mask, scores, lowest) hides the others from amax.",
        "A row that is all hidden has a sum of 0; keep the division from being 0/0.",
    ],
)


# The softmax's derivative.


def _backward_cases(draw: Inputs) -> Iterator[Case]:
    for name, shape in (
        ("one row", (1, draw.whole(3, 6))),
        ("several rows", (draw.whole(2, 5), draw.whole(3, 8))),
    ):
        yield Case(name, (draw.normal(*shape).softmax(-1), draw.normal(*shape)))
    four = (2, draw.whole(2, 3), draw.whole(2, 5), draw.whole(3, 8))
    yield Case("four axes", (draw.normal(*four).softmax(-1), draw.normal(*four)), edge=True)
    zeros = torch.zeros(2, 5)
    yield Case(
        "a row without weights", (torch.stack([zeros[0], draw.normal(5).softmax(-1)]), draw.normal(2, 5)), edge=True
    )


softmax_backward = Check(
    "softmax_backward",
    answer=lambda weights, upstream: weights * (upstream - (upstream * weights).sum(-1, keepdim=True)),
    cases=_backward_cases,
    misconceptions=[
        Misconception(
            lambda weights, upstream: weights * (1 - weights) * upstream,
            "only the diagonal of the Jacobian is used, α(1 − α)",
            "Each weight also depends on all other scores of its row.",
            _SCALE,
        ),
        Misconception(
            lambda weights, upstream: weights * upstream,
            "the term −α αᵀ of the Jacobian is missing",
            "A rise of all upstream entries together must change nothing, since weights add up to one.",
            _SCALE,
        ),
        Misconception(
            lambda weights, upstream: weights * (upstream - upstream.mean(-1, keepdim=True)),
            "the plain mean of the upstream gradient is subtracted",
            "It is the mean by the weights: each entry counts as much as its weight.",
            _SCALE,
        ),
        Misconception(
            lambda weights, upstream: weights * (upstream - (upstream * weights).sum()),
            "the sum runs over all axes",
            "A row's softmax knows nothing of other rows: sum over the last axis alone.",
            _SCALE,
        ),
        Misconception(
            lambda weights, upstream: upstream - (upstream * weights).sum(-1, keepdim=True),
            "the factor α in front is missing",
            "A score whose weight is 0 has no influence, so its gradient is 0.",
            _SCALE,
        ),
        Misconception(
            lambda weights, upstream: weights * ((upstream * weights).sum(-1, keepdim=True) - upstream),
            "the sign is turned round",
            "A score that rises raises its own weight.",
            _SCALE,
        ),
    ],
    hints=[
        "∂αᵢ/∂aⱼ = αᵢ(δᵢⱼ − αⱼ). Multiply by the upstream gradient gᵢ and sum over i.",
        "The sum over i of gᵢ αᵢ is one number for each row: compute it once.",
    ],
)
