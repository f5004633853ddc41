"""Check of scores with rotary position embeddings (RoPE)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_book.check.positional import waves
from attn_core.positions import Rotary

_PAGE = "chapters/06_positions"
_WHERE = (_PAGE, "Learned and sinusoidal positions")
_INSIDE = (_PAGE, "Positions inside the scores")
_ROTARY = (_PAGE, "Rotary positions")
_SCALE = ("chapters/01_pooling", "Why divide by √d?")


def _rotary_cases(draw: Inputs) -> Iterator[Case]:
    batch, heads, size = draw.whole(1, 2), draw.whole(1, 3), 2 * draw.whole(2, 5)

    def case(name: str, first: int, queries: int, keys: int, edge: bool = False) -> Case:
        q, k = (draw.normal(batch, heads, n, size) for n in (queries, keys))
        return Case(name, (q, k, first + torch.arange(queries), torch.arange(keys)), edge)

    words = draw.whole(5, 8)
    yield case("self-attention in a sentence", 0, words, words)
    yield case("new words after cached ones", words, draw.whole(2, 3), words + 3)
    yield case("a single query", draw.whole(20, 40), 1, words, edge=True)
    q, k, positions, others = case("", 0, words, words).args
    yield Case("positions that are not in order", (q, k, positions.flip(0), 3 * others - 5), edge=True)


def _dot(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


def _rotate(x: Tensor, positions: Tensor) -> Tensor:
    return Rotary(x.shape[-1]).rotate(x, positions)


def _rotate_by(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    angles = positions[:, None] * frequencies
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()
    return torch.stack(turned, -1).flatten(-2)


def _rotate_halves(x: Tensor, positions: Tensor) -> Tensor:
    """Entry j with entry j + D/2."""
    paired = x.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
    return _rotate(paired, positions).unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


def _add(x: Tensor, positions: Tensor) -> Tensor:
    size = x.shape[-1]
    return x + waves(positions, size, 10_000.0 ** (-torch.arange(0, size, 2) / size))


rotary_scores = Check(
    "rotary_scores",
    answer=lambda q, k, query_positions, key_positions: _dot(_rotate(q, query_positions), _rotate(k, key_positions)),
    cases=_rotary_cases,
    close=1e-3,
    misconceptions=[
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(_rotate(q, query_positions), k),
            "only the queries are rotated",
            "The score then depends on the query's position. Rotate the keys too, and only the difference is left.",
            _ROTARY,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(_rotate(q, query_positions), _rotate(k, -key_positions)),
            "queries and keys are rotated in opposite directions",
            "The score then depends on the sum of the positions. Rotated in the same direction, it depends on "
            "the difference.",
            _ROTARY,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(_rotate(q, -query_positions), _rotate(k, -key_positions)),
            "both are rotated backwards",
            "The angle is +ωi. With the other sign, keys before and after the query are exchanged.",
            _ROTARY,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(
                _rotate(q, torch.arange(q.shape[-2])), _rotate(k, torch.arange(k.shape[-2]))
            ),
            "the positions are counted from 0 instead of taken from the arguments",
            "A word that arrives later, without the others, must be rotated by its own position.",
            _ROTARY,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(
                _rotate_halves(q, query_positions), _rotate_halves(k, key_positions)
            ),
            "entry j is paired with entry j + D/2",
            "Some implementations do that. In this book entries 2j and 2j + 1 make a pair, and trained "
            "parameters fit only one convention.",
            _ROTARY,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(
                *(_rotate_by(x, p, torch.ones(x.shape[-1] // 2)) for x, p in ((q, query_positions), (k, key_positions)))
            ),
            "all pairs rotate at the same frequency",
            "Each pair has its own, as the sinusoids have.",
            _WHERE,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _rotate(q, query_positions) @ _rotate(k, key_positions).mT,
            "the scores are not divided by √D",
            "A rotation does not change lengths, so the products still grow with the head dimension.",
            _SCALE,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(_add(q, query_positions), _add(k, key_positions)),
            "sinusoids are added instead of used for a rotation",
            "A product of sums has four terms, and depends on more than the difference.",
            _INSIDE,
        ),
    ],
    hints=[
        "Write a function rotate(x, positions) first, and use it for queries and for keys.",
        "With even, odd = x[..., 0::2], x[..., 1::2]: the rotated pair is (even cos − odd sin, even sin + odd cos).",
        (
            "The angles are positions[:, None] * frequencies, (n, D/2). Stack the two results on a last axis and "
            "flatten it."
        ),
    ],
)
