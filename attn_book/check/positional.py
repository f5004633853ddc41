"""Checks of sinusoidal positions, and how a product of two of them tells before from after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.positions import sinusoidal

_PAGE = "chapters/06_positions"
_WHERE = (_PAGE, "Learned and sinusoidal positions")
_SHIFT = (_PAGE, "A shift is a rotation")


# Sinusoids.


def _sinusoid_cases(draw: Inputs) -> Iterator[Case]:
    size = 2 * draw.whole(3, 8)
    yield Case("the first positions", (torch.arange(draw.whole(6, 12)).float(), size, 10_000.0))
    yield Case("some later positions", (20 * draw.uniform(5) + 5, size + 2, 10.0 * draw.whole(2, 20)))
    yield Case("an odd size", (20 * draw.uniform(5), size + 1, 100.0), edge=True)
    yield Case("positions before the first", (-20 * draw.uniform(4), size, 100.0), edge=True)
    yield Case("a size of 1", (torch.arange(4.0), 1, 100.0), edge=True)


def waves(positions: Tensor, d: int, frequencies: Tensor) -> Tensor:
    """Sines and cosines side by side, ``(n, d)``, of ``positions (n,)`` at ``frequencies``, one for each pair."""
    angles = positions[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[:, :d]


def _frequencies(d: int, base: float, factor: float = 1.0) -> Tensor:
    return base ** (-factor * torch.arange(0, d, 2) / d)


def _halves(positions: Tensor, d: int, base: float) -> Tensor:
    angles = positions[:, None] * _frequencies(d, base)
    return torch.cat([angles.sin(), angles.cos()], -1)[:, :d]


def _cosine_first(positions: Tensor, d: int, base: float) -> Tensor:
    angles = positions[:, None] * _frequencies(d, base)
    return torch.stack([angles.cos(), angles.sin()], -1).flatten(-2)[:, :d]


def _own_frequencies(positions: Tensor, d: int, base: float) -> Tensor:
    angles = positions[:, None] * base ** (-torch.arange(d) / d)
    return torch.where(torch.arange(d) % 2 == 0, angles.sin(), angles.cos())


sinusoids = Check(
    "sinusoids",
    answer=lambda positions, d, base: waves(positions, d, _frequencies(d, base)),
    cases=_sinusoid_cases,
    close=1e-3,
    misconceptions=[
        Misconception(
            _halves,
            "all sines come first, and then all cosines",
            "Sine and cosine of one frequency stand side by side, in the columns 2j and 2j + 1.",
            _WHERE,
        ),
        Misconception(
            _cosine_first,
            "each cosine comes before its sine",
            "The even columns are sines.",
            _WHERE,
        ),
        Misconception(
            _own_frequencies,
            "each column has a frequency of its own",
            "The two columns of a pair share one. Only then is a pair a point on a circle.",
            _SHIFT,
        ),
        Misconception(
            lambda positions, d, base: waves(positions, d, _frequencies(d, base, 0.5)),
            "the exponent is −j/d instead of −2j/d",
            "There are d/2 pairs, and the exponent runs from 0 to nearly −1.",
            _WHERE,
        ),
        Misconception(
            lambda positions, d, base: waves(positions, d, _frequencies(d, base, -1.0)),
            "the frequencies rise from pair to pair",
            "The frequencies must fall: the exponent is negative.",
            _WHERE,
        ),
        Misconception(
            lambda positions, d, base: waves(positions, d, _frequencies(d, 10_000.0)),
            "the base is always 10,000",
            "The base is an argument of this function.",
            _WHERE,
        ),
        Misconception(
            lambda positions, d, base: waves(torch.arange(len(positions)).float(), d, _frequencies(d, base)),
            "the positions are counted from 0 instead of taken from the arguments",
            "A word that arrives later, without the others, must get the encoding of its own position.",
            _WHERE,
        ),
    ],
    hints=[
        "The frequencies are base ** (-torch.arange(0, d, 2) / d), one for each pair of columns.",
        "positions[:, None] * frequencies holds all angles: a row for each position.",
        "torch.stack([angles.sin(), angles.cos()], -1).flatten(-2) puts them side by side; [:, :d] cuts an odd size.",
    ],
)


# A matrix that tells before from after.


def _use_order(attempt: Any, d: int, length: int) -> dict[str, float]:
    """The mean sign of p_i · A p_j, for each distance: 1 if it is always positive, −1 if always negative."""
    table = sinusoidal(length, d)
    products = table @ attempt(d).to(table) @ table.T
    return {
        f"the mean sign {abs(delta)} {'after' if delta > 0 else 'before'}": float(
            products.diagonal(delta).sign().mean()
        )
        for delta in (-3, -2, -1, 1, 2, 3)
    }


def _order_cases(draw: Inputs) -> Iterator[Case]:
    yield Case("a small encoding", (2 * draw.whole(3, 8), draw.whole(20, 30)))
    yield Case("a large encoding", (2 * draw.whole(16, 40), draw.whole(40, 60)))
    yield Case("a long sentence", (16, draw.whole(300, 500)), edge=True)


def _block(d: int, entries: dict[tuple[int, int], float]) -> Tensor:
    matrix = torch.zeros(d, d)
    for position, value in entries.items():
        matrix[position] = value
    return matrix


order_matrix = Check(
    "order_matrix",
    answer=lambda d: _block(d, {(0, 1): -1.0, (1, 0): 1.0}),
    cases=_order_cases,
    use=_use_order,
    misconceptions=[
        Misconception(
            lambda d: _block(d, {(0, 1): 1.0, (1, 0): -1.0}),
            "the quarter turn is in the other direction",
            "Then the product is sin(i − j): positive before, and negative after.",
            _SHIFT,
        ),
        Misconception(
            torch.eye,
            "the products do not tell before from after",
            "They are all positive, as those of the identity are. A product that is odd in the distance can tell.",
            _SHIFT,
        ),
        Misconception(
            lambda d: -torch.eye(d),
            "the products are all negative",
            "They do not tell before from after. A product that is odd in the distance can tell.",
            _SHIFT,
        ),
        Misconception(
            lambda d: _block(d, {(0, 0): 1.0, (1, 1): 1.0}),
            "the first pair is left unchanged",
            "Its product is cos(j − i), the same before and after.",
            _SHIFT,
        ),
        Misconception(
            lambda d: _block(d, {(1, 0): 1.0}),
            "one sine is multiplied with one cosine, but not the other way round",
            "cos i · sin j depends on the positions. Only with −sin i · cos j does it become sin(j − i).",
            _SHIFT,
        ),
        Misconception(
            lambda d: _block(d, {(0, 2): -1.0, (2, 0): 1.0}),
            "the sines of two pairs are multiplied",
            "A rotation takes place within one pair: the sine and the cosine of one frequency.",
            _SHIFT,
        ),
    ],
    hints=[
        "sin(j − i) is positive for j = i + 1, i + 2, i + 3, and negative for as many before. Which columns make it?",
        "sin(j − i) = cos i · sin j − sin i · cos j, and the first two columns are sin i and cos i.",
        "So two entries of A are not zero: A[1, 0] and A[0, 1]. What are their signs?",
    ],
)
