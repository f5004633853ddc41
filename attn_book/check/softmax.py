"""Checks of the softmax with a mask, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.mechanisms.dense import masked_softmax as right_softmax

_PAGE = "chapters/01_pooling"
_MASKS = (_PAGE, "Masking")
_SCALE = (_PAGE, "Why divide by √d?")


# A softmax among the allowed.


def _softmax_cases(draw: Inputs) -> Iterator[Case]:
    rows, keys = draw.whole(3, 6), draw.whole(4, 9)
    scores, mask = draw.normal(rows, keys), draw.mask(rows, keys)
    yield Case("scores without a mask", (scores, torch.ones(rows, keys, dtype=torch.bool)))
    yield Case("scores of which some are masked", (scores, mask))
    yield Case("scores 1000 times as large", (1000 * scores, mask), edge=True)
    yield Case("masked scores of 1000", (scores.masked_fill(~mask, 1000.0), mask), edge=True)
    yield Case("a fully masked row", (scores, mask & (torch.arange(rows) > 0)[:, None]), edge=True)
    many = draw.normal(2, draw.whole(2, 3), rows, keys)
    yield Case("scores with four axes and one mask for all", (many, mask), edge=True)


def _plain(scores: Tensor, mask: Tensor) -> Tensor:
    """The softmax from exponentials, without subtracting a maximum."""
    raised = scores.exp() * mask
    return raised / raised.sum(-1, keepdim=True)


def _top_of_all(scores: Tensor, mask: Tensor) -> Tensor:
    raised = (scores - scores.amax(-1, keepdim=True)).exp() * mask
    return raised / raised.sum(-1, keepdim=True).clamp(min=1e-30)


softmax_with_mask = Check(
    "softmax_with_mask",
    function="masked_softmax",
    answer=right_softmax,
    cases=_softmax_cases,
    misconceptions=[
        Misconception(
            lambda scores, mask: right_softmax(scores, ~mask),
            "the mask is interpreted the other way round",
            "In this book, True means that a query may attend to the key.",
            _MASKS,
        ),
        Misconception(
            lambda scores, mask: scores.softmax(-1) * mask,
            "the mask is multiplied in after the softmax",
            "The masked keys have already taken their share, and the other weights no longer add up to one.",
            _MASKS,
        ),
        Misconception(
            lambda scores, mask: (scores * mask).softmax(-1),
            "masked scores are set to 0",
            "e⁰ is 1, so a masked key still gets weight. Its exponential must be 0, not its score.",
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
            "masked scores are set to a large negative number, such as −10⁶",
            "In a fully masked row all scores are then equal, so it gets uniform weights instead of zeros.",
            _MASKS,
        ),
        Misconception(
            lambda scores, mask: scores.masked_fill(~mask, -math.inf).softmax(-1),
            "a fully masked row is not handled",
            "Its sum is 0, and 0/0 is NaN, as is −∞ − (−∞) where masked scores are −∞. It gets zeros.",
            _MASKS,
        ),
        Misconception(
            _plain,
            "no maximum is subtracted before the exponential",
            "e¹⁰⁰ is too large for a float, and ∞/∞ is NaN; a fully masked row becomes 0/0.",
            _MASKS,
        ),
        Misconception(
            _top_of_all,
            "the subtracted maximum is over all scores, masked ones included",
            "If a masked score is far above the others, every visible exponential becomes 0.",
            _MASKS,
        ),
    ],
    hints=[
        (
            "Subtracting one number from all scores of a row changes no weight. Which number makes the greatest "
            "exponential 1?"
        ),
        "It must be the greatest of the visible scores: take amax of torch.where(mask, scores, lowest).",
        "A fully masked row has a sum of 0; keep the division from being 0/0.",
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
            "Raising all upstream entries by the same amount must change nothing, since the weights add up to one.",
            _SCALE,
        ),
        Misconception(
            lambda weights, upstream: weights * (upstream - upstream.mean(-1, keepdim=True)),
            "the plain mean of the upstream gradient is subtracted",
            "It must be the weighted mean: each entry counts as much as its weight.",
            _SCALE,
        ),
        Misconception(
            lambda weights, upstream: weights * (upstream - (upstream * weights).sum()),
            "the sum runs over all axes",
            "The softmax of a row does not depend on other rows: sum only over the last axis.",
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
            "the sign is reversed",
            "A larger score must give a larger weight.",
            _SCALE,
        ),
    ],
    hints=[
        "∂αᵢ/∂aⱼ = αᵢ(δᵢⱼ − αⱼ). Multiply by the upstream gradient gᵢ and sum over i.",
        "The sum over i of gᵢ αᵢ is one number for each row: compute it once.",
    ],
)
