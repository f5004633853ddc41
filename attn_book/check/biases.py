"""Checks of positions as a bias on the scores."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.positions import ALiBi

_PAGE = "chapters/06_positions"
_INSIDE = (_PAGE, "Positions inside the scores")
_ALIBI = (_PAGE, "ALiBi")


# ALiBi's bias.


def _alibi_cases(draw: Inputs) -> Iterator[Case]:
    words, heads = draw.whole(5, 9), 2 ** draw.whole(1, 2)
    here = torch.arange(words)
    yield Case(f"{heads} heads on a sentence", (heads, here, here))
    yield Case("16 heads on the last words of a sentence", (16, here[-draw.whole(2, 3) :], here))
    yield Case("8 heads", (8, here, here), edge=True)
    yield Case("a single head", (1, here, here + 2), edge=True)
    yield Case("one query far away", (4, torch.tensor([1000]), here), edge=True)


def _bias(slopes: Tensor, distances: Tensor) -> Tensor:
    return -slopes[:, None, None] * distances


def _slopes(heads: int) -> Tensor:
    return torch.tensor(ALiBi(heads).slopes)


def _apart(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    return (query_positions[:, None] - key_positions).abs().float()


alibi_bias = Check(
    "alibi_bias",
    answer=lambda num_heads, *positions: ALiBi(num_heads).bias(*positions),
    cases=_alibi_cases,
    misconceptions=[
        Misconception(
            lambda num_heads, *positions: _bias(-_slopes(num_heads), _apart(*positions)),
            "the bias grows with the distance",
            "The bias must lower the score of a distant key, so its sign is negative.",
            _ALIBI,
        ),
        Misconception(
            lambda num_heads, query_positions, key_positions: _bias(
                _slopes(num_heads), (query_positions[:, None] - key_positions).float()
            ),
            "the distance keeps its sign",
            "Keys ahead of the query would then gain with each position. The book uses |i − j|.",
            _ALIBI,
        ),
        Misconception(
            lambda num_heads, *positions: _bias(_slopes(num_heads) * 2 ** (8 / num_heads), _apart(*positions)),
            "heads are counted from 0",
            "The first slope is 2^(−8/H), and the last is 2⁻⁸: h runs from 1 to H.",
            _ALIBI,
        ),
        Misconception(
            lambda num_heads, *positions: _bias(0.5 ** torch.arange(1, num_heads + 1), _apart(*positions)),
            "the slopes are 1/2, 1/4, 1/8, … for any number of heads",
            "That is so for 8 heads. The exponent is 8h/H.",
            _ALIBI,
        ),
        Misconception(
            lambda num_heads, *positions: _bias(_slopes(num_heads).flip(0), _apart(*positions)),
            "the slopes rise from head to head",
            "The first head has the steepest one.",
            _ALIBI,
        ),
        Misconception(
            lambda num_heads, query_positions, key_positions: _bias(
                _slopes(num_heads), _apart(torch.arange(len(query_positions)), torch.arange(len(key_positions)))
            ),
            "the positions are counted from 0 instead of taken from the arguments",
            "The last words of a sentence keep their positions when they arrive without the earlier words.",
            _ALIBI,
        ),
        Misconception(
            lambda num_heads, *positions: _bias(_slopes(num_heads), _apart(*positions) ** 2),
            "the distance is squared",
            "The bias is linear in the distance, as the name ALiBi says (attention with linear biases).",
            _ALIBI,
        ),
    ],
    hints=[
        "(query_positions[:, None] - key_positions).abs() holds the distances, (T, S).",
        "The slopes are 2.0 ** (-8 * torch.arange(1, H + 1) / H). Which axes make them (H, 1, 1)?",
    ],
)


# A learned bias for each distance.


def _relative_cases(draw: Inputs) -> Iterator[Case]:
    heads, reach, words = draw.whole(2, 4), draw.whole(2, 3), draw.whole(6, 9)
    table, here = draw.normal(heads, 2 * reach + 1), torch.arange(words)
    yield Case("a sentence longer than the table reaches", (table, here, here))
    yield Case("the last words of a sentence", (table, here[-3:], here))
    yield Case("a short sentence", (table, here[: reach + 1], here[: reach + 1]), edge=True)
    yield Case("a query far away from all keys", (table, torch.tensor([500]), here), edge=True)
    yield Case("a table with one entry a head", (table[:, :1], here, here), edge=True)


def _looked_up(table: Tensor, distances: Tensor) -> Tensor:
    """The table's entries at signed distances, which are clipped to its reach."""
    reach = table.shape[1] // 2
    return table[:, distances.clamp(-reach, reach) + reach]


def _ahead(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    return key_positions - query_positions[:, None]


def _wrapped(table: Tensor, *positions: Tensor) -> Tensor:
    return table[:, (_ahead(*positions) + table.shape[1] // 2) % table.shape[1]]


def _silent(table: Tensor, *positions: Tensor) -> Tensor:
    return _looked_up(table, _ahead(*positions)) * (_ahead(*positions).abs() <= table.shape[1] // 2)


relative_bias = Check(
    "relative_bias",
    answer=lambda table, *positions: _looked_up(table, _ahead(*positions)),
    cases=_relative_cases,
    misconceptions=[
        Misconception(
            lambda table, *positions: _looked_up(table, -_ahead(*positions)),
            "keys before and after the query are exchanged",
            "Column r is for a key at the query's own position, and the columns after it for keys that come later.",
            _INSIDE,
        ),
        Misconception(
            lambda table, *positions: _looked_up(table, _ahead(*positions).abs()),
            "the sign of the distance is lost",
            "Then a sentence and its mirror image get the same bias, but a learned table can treat them differently.",
            _ALIBI,
        ),
        Misconception(
            lambda table, *positions: table[:, _ahead(*positions) + table.shape[1] // 2],
            "the distance is not clipped to the reach of the table",
            "An index past the end raises an error, and a negative one silently counts from the end.",
            _INSIDE,
        ),
        Misconception(
            _wrapped,
            "distances past the reach wrap around to the other side",
            "All larger distances share the outermost entry.",
            _INSIDE,
        ),
        Misconception(
            _silent,
            "distances past the reach get no bias",
            "They should share the outermost entry.",
            _INSIDE,
        ),
        Misconception(
            lambda table, query_positions, key_positions: _looked_up(
                table, _ahead(torch.arange(len(query_positions)), torch.arange(len(key_positions)))
            ),
            "the positions are counted from 0 instead of taken from the arguments",
            "The last words of a sentence keep their positions when they arrive without the earlier words.",
            _INSIDE,
        ),
        Misconception(
            lambda table, *positions: _looked_up(table, _ahead(*positions)).mT.contiguous(),
            "queries and keys are exchanged in the result",
            "A row belongs to a query: the shape is (H, T, S).",
            _INSIDE,
        ),
    ],
    hints=[
        "key_positions - query_positions[:, None] holds the distances with their signs, (T, S).",
        "Clip them: distances.clamp(-r, r), with r = table.shape[1] // 2. Which column belongs to distance 0?",
        "table[:, index] with an index of shape (T, S) has the shape (H, T, S).",
    ],
)
