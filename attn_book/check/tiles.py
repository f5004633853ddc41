"""Checks of the online softmax over tiles, and the merge of two halves of a row."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_PAGE = "chapters/10_flash"
_ONCE = (_PAGE, "The softmax in one pass")


# The sum of a softmax, tile by tile.


def _row_cases(draw: Inputs) -> Iterator[Case]:
    tile = draw.whole(3, 5)
    even, uneven = draw.normal(3 * tile) - 1, draw.normal(4 * tile - 1) - 1
    for number in range(1, 3):  # the maximum rises with the second tile, and not with the third
        even[number * tile] = uneven[number * tile] = 7 - 2 * number
    yield Case(f"3 tiles of {tile} scores", (even, tile))
    yield Case(f"{len(uneven)} scores in tiles of {tile}", (uneven, tile))
    hidden = uneven.index_fill(0, torch.arange(tile), -math.inf)
    yield Case("a fully masked first tile", (hidden, tile), edge=True)
    yield Case("a fully masked row", (torch.full_like(uneven, -math.inf), tile), edge=True)
    yield Case("scores of 1000", (uneven + 1000, tile), edge=True)
    yield Case("scores far below 0", (uneven - 1000, tile), edge=True)


def _sums(
    row: Tensor, tile: int, *, start: float = -math.inf, mend: bool = True, shrink: bool = True, so_far: bool = True
) -> Tensor:
    highest, total, totals = torch.tensor(start), torch.tensor(0.0), []
    for x in row.split(tile):
        higher = torch.maximum(highest, x.max()) if so_far else x.max()
        base = higher.nan_to_num(neginf=0.0) if mend else higher
        total = (total * (highest - base).exp() if shrink else total) + (x - base).exp().sum()
        highest = higher
        totals.append(total)
    return torch.stack(totals)


def _without_maximum(row: Tensor, tile: int) -> Tensor:
    return torch.stack([x.exp().sum() for x in row.split(tile)]).cumsum(0)


running_sums = Check(
    "running_sums",
    answer=_sums,
    cases=_row_cases,
    misconceptions=[
        Misconception(
            lambda row, tile: _sums(row, tile, shrink=False),
            "the old sum is not rescaled when the maximum rises",
            "Its terms are relative to the old maximum; relative to the new one each is smaller.",
            _ONCE,
        ),
        Misconception(
            lambda row, tile: _sums(row, tile, so_far=False),
            "the maximum is only that of the last tile",
            "It must never fall: take the greater of the old maximum and the tile's.",
            _ONCE,
        ),
        Misconception(
            lambda row, tile: torch.stack([(x - x.max().nan_to_num(neginf=0.0)).exp().sum() for x in row.split(tile)]),
            "each tile has a sum of its own",
            "The sum runs over all scores so far: rescale the old part and keep it.",
            _ONCE,
        ),
        Misconception(
            _without_maximum,
            "no maximum is subtracted",
            "e¹⁰⁰⁰ is more than a float can hold, so all exponentials must be relative to the highest score so far.",
            _ONCE,
        ),
        Misconception(
            lambda row, tile: (
                (row - row.max().nan_to_num(neginf=0.0))
                .exp()
                .cumsum(0)[[min(i + tile, len(row)) - 1 for i in range(0, len(row), tile)]]
            ),
            "the maximum is that of the whole row",
            "In a single pass it is not known yet: a tile knows only the scores so far.",
            _ONCE,
        ),
        Misconception(
            lambda row, tile: _sums(row, tile, start=0.0),
            "the maximum starts at 0",
            "If all scores lie far below 0, every exponential vanishes. Start at −∞.",
            _ONCE,
        ),
        Misconception(
            lambda row, tile: _sums(row, tile, mend=False),
            "−∞ is subtracted from −∞ while every score so far is masked",
            "That is NaN, which then stays. Subtract 0 while there is no maximum.",
            _ONCE,
        ),
    ],
    hints=[
        "Keep two numbers from tile to tile: the highest score so far, and the sum relative to it.",
        "total * (m − higher).exp() + (x − higher).exp().sum(), with higher the greater of m and the tile's maximum.",
        "Where higher is still −∞, subtract 0: higher.nan_to_num(neginf=0.0).",
    ],
)


# Two halves of a row of keys.


def _half_cases(draw: Inputs) -> Iterator[Case]:
    for name in ("two halves", "two other halves"):
        rows, size = draw.whole(2, 4), draw.whole(3, 6)
        one, two, logs = draw.normal(rows, size), draw.normal(rows, size), 2 * draw.normal(2, rows)
        yield Case(name, (one, logs[0], two, logs[1]))
    yield Case("scores of 1000", (one, 1000 + logs[0], two, 1000 + logs[1]), edge=True)
    nothing, never = torch.zeros_like(one), torch.full_like(logs[0], -math.inf)
    yield Case("a fully masked half", (one, logs[0], nothing, never), edge=True)
    yield Case("two fully masked halves", (nothing, never, nothing, never), edge=True)


def _merged(one: Tensor, log_one: Tensor, two: Tensor, log_two: Tensor) -> tuple[Tensor, Tensor]:
    whole = torch.logaddexp(log_one, log_two)
    base = whole.nan_to_num(neginf=0.0)
    out = (log_one - base).exp()[:, None] * one + (log_two - base).exp()[:, None] * two
    return out, whole


def _shared(one: Tensor, two: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The mean of two outputs with weights (n,)."""
    return (first[:, None] * one + second[:, None] * two) / (first + second)[:, None]


merge = Check(
    "merge",
    answer=_merged,
    cases=_half_cases,
    misconceptions=[
        Misconception(
            lambda one, log_one, two, log_two: ((one + two) / 2, torch.logaddexp(log_one, log_two)),
            "the outputs are averaged with equal weights",
            "A half with higher scores has more of the weight: the halves count as e^L₁ : e^L₂.",
            _ONCE,
        ),
        Misconception(
            lambda one, log_one, two, log_two: (one + two, torch.logaddexp(log_one, log_two)),
            "the outputs are added",
            "Each has been divided by its own sum already, so the weights of the sum add up to two.",
            _ONCE,
        ),
        Misconception(
            lambda one, log_one, two, log_two: (
                _shared(one, two, log_one, log_two),
                torch.logaddexp(log_one, log_two),
            ),
            "the halves count as L₁ : L₂",
            "L is a logarithm, and may be negative. The sums themselves are e^L.",
            _ONCE,
        ),
        Misconception(
            lambda one, log_one, two, log_two: (
                log_one.exp()[:, None] * one + log_two.exp()[:, None] * two,
                torch.logaddexp(log_one, log_two),
            ),
            "the outputs are weighed by e^L and not divided by the sum of both",
            "e^L takes back the division of one half. The whole row has a sum of its own.",
            _ONCE,
        ),
        Misconception(
            lambda one, log_one, two, log_two: (_merged(one, log_one, two, log_two)[0], log_one + log_two),
            "the logarithms are added",
            "That would be the logarithm of a product. The sums add: log(e^L₁ + e^L₂).",
            _ONCE,
        ),
        Misconception(
            lambda one, log_one, two, log_two: (
                _merged(one, log_one, two, log_two)[0],
                torch.maximum(log_one, log_two),
            ),
            "the greater of the two logarithms is kept",
            "That is only a bound: both halves have exponentials to add.",
            _ONCE,
        ),
        Misconception(
            lambda one, log_one, two, log_two: (
                _shared(one, two, log_one.exp(), log_two.exp()),
                (log_one.exp() + log_two.exp()).log(),
            ),
            "e^L is taken without subtracting anything first",
            "e¹⁰⁰⁰ is ∞, and ∞/∞ is NaN. Subtract the logarithm of the whole sum.",
            _ONCE,
        ),
        Misconception(
            lambda one, log_one, two, log_two: (
                _shared(one, two, *torch.stack([log_one, log_two]).softmax(0)),
                torch.logaddexp(log_one, log_two),
            ),
            "a query without visible keys in either half is not handled",
            "For such a query −∞ − (−∞) is NaN. It gets zeros, and its logarithm stays −∞.",
            _ONCE,
        ),
    ],
    hints=[
        "e^L is the true sum of exponentials of one half: the halves count as e^L₁ : e^L₂.",
        "torch.logaddexp(log_one, log_two) is the logarithm of both sums together, without overflow.",
        "The first half counts (log_one − whole).exp(). Where whole is −∞, subtract 0.",
    ],
)
