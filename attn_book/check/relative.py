"""Check of chapter 4: scores with rotary positions."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_book.check.places import waves
from attn_core.positions import Rotary

_PAGE = "chapters/04_self_attention"
_WHERE = (_PAGE, "Where am I?")
_ADDED = (_PAGE, "Added, or inside the scores?")
_ROTARY = (_PAGE, "Rotary")
_SCALE = ("chapters/01_attention_pooling", "Why divide by √d?")


def _rotary_cases(draw: Inputs) -> Iterator[Case]:
    batch, heads, size = draw.whole(1, 2), draw.whole(1, 3), 2 * draw.whole(2, 5)

    def case(name: str, first: int, queries: int, keys: int, edge: bool = False) -> Case:
        q, k = (draw.normal(batch, heads, n, size) for n in (queries, keys))
        return Case(name, (q, k, first + torch.arange(queries), torch.arange(keys)), edge)

    words = draw.whole(5, 8)
    yield case("a sentence that asks itself", 0, words, words)
    yield case("words that follow others", words, draw.whole(2, 3), words + 3)
    yield case("a single query", draw.whole(20, 40), 1, words, edge=True)
    q, k, places, others = case("", 0, words, words).args
    yield Case("places that are not in order", (q, k, places.flip(0), 3 * others - 5), edge=True)


def _dot(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


def _turn(x: Tensor, places: Tensor) -> Tensor:
    return Rotary(x.shape[-1]).rotate(x, places)


def _turn_by(x: Tensor, places: Tensor, frequencies: Tensor) -> Tensor:
    angles = places[:, None] * frequencies
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()
    return torch.stack(turned, -1).flatten(-2)


def _turn_halves(x: Tensor, places: Tensor) -> Tensor:
    """Entry j with entry j + D/2."""
    paired = x.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
    return _turn(paired, places).unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


def _add(x: Tensor, places: Tensor) -> Tensor:
    size = x.shape[-1]
    return x + waves(places, size, 10_000.0 ** (-torch.arange(0, size, 2) / size))


rotary_scores = Check(
    "rotary_scores",
    answer=lambda q, k, query_positions, key_positions: _dot(_turn(q, query_positions), _turn(k, key_positions)),
    cases=_rotary_cases,
    close=1e-3,
    misconceptions=[
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(_turn(q, query_positions), k),
            "only the queries are turned",
            "The score then depends on the query's place. Turn the keys too, and only the difference is left.",
            _ROTARY,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(_turn(q, query_positions), _turn(k, -key_positions)),
            "queries and keys are turned in opposite directions",
            "The score then depends on the sum of the places. Turned alike, they leave the difference.",
            _ROTARY,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(_turn(q, -query_positions), _turn(k, -key_positions)),
            "both are turned backwards",
            "The angle is +ωi. With the other sign, before and after are exchanged.",
            _ROTARY,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(
                _turn(q, torch.arange(q.shape[-2])), _turn(k, torch.arange(k.shape[-2]))
            ),
            "the positions are counted from 0 instead of read",
            "A word that comes later, alone, must be rotated by its own position.",
            _ROTARY,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(
                _turn_halves(q, query_positions), _turn_halves(k, key_positions)
            ),
            "entry j is paired with entry j + D/2",
            "Some programs do that. Here entries 2j and 2j + 1 make a plane, and learned weights fit one way only.",
            _ROTARY,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(
                *(_turn_by(x, p, torch.ones(x.shape[-1] // 2)) for x, p in ((q, query_positions), (k, key_positions)))
            ),
            "all pairs turn at the same frequency",
            "Each pair has its own, as the sinusoids have.",
            _WHERE,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _turn(q, query_positions) @ _turn(k, key_positions).mT,
            "the scores are not divided by √D",
            "A turn changes no length, so the products grow with the size as they did.",
            _SCALE,
        ),
        Misconception(
            lambda q, k, query_positions, key_positions: _dot(_add(q, query_positions), _add(k, key_positions)),
            "sinusoids are added instead of used to turn",
            "A product of sums has four terms, and depends on more than the difference.",
            _ADDED,
        ),
    ],
    hints=[
        "Write a function turn(x, places) first, and use it for queries and for keys.",
        "With even, odd = x[..., 0::2], x[..., 1::2]: the turned pair is (even cos − odd sin, even sin + odd cos).",
        "The angles are places[:, None] * frequencies, (n, D/2). Stack the two results on a last axis and flatten it.",
    ],
)
