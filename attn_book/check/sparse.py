"""Checks of the number of pairs in a window, the layers that a pattern needs, and a pattern as a mask."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_PAGE = "chapters/13_sparse"
_WINDOW = (_PAGE, "Sliding windows")
_REACH = (_PAGE, "The reach of a window")
_GLOBAL = (_PAGE, "Global tokens")


# The pairs inside a window.


def _pair_cases(draw: Inputs) -> Iterator[Case]:
    for name, tokens in (("a text", draw.whole(30, 60)), ("a longer text", draw.whole(2000, 4000))):
        yield Case(f"{name} of {tokens} tokens", (tokens, draw.whole(3, tokens // 3)))
    yield Case("a window of no key on either side", (tokens, 0), edge=True)
    yield Case("a window from end to end", (tokens, tokens - 1), edge=True)


pairs = Check(
    "pairs",
    answer=lambda n, w: n * (2 * w + 1) - w * (w + 1),
    cases=_pair_cases,
    misconceptions=[
        Misconception(
            lambda n, w: n * (2 * w + 1),
            "the ends of the text are ignored",
            "The first token has no keys before it, so part of its window lies outside the text.",
            _WINDOW,
        ),
        Misconception(
            lambda n, w: n * (2 * w + 1) - w * (w + 1) // 2,
            "the pairs outside the text are subtracted at one end only",
            "A text has two ends, and at each of them w + … + 2 + 1 pairs lie outside.",
            _WINDOW,
        ),
        Misconception(
            lambda n, w: n * (2 * w + 1) - w * (w - 1),
            "w − 1 pairs are subtracted for the token at the end, instead of w",
            "The first token misses all w keys before it, the second w − 1, and so on down to 1.",
            _WINDOW,
        ),
        Misconception(
            lambda n, w: 2 * n * w - w * (w + 1),
            "a token's own key is not counted",
            "A token attends to w keys before it, its own, and w after it.",
            _WINDOW,
        ),
        Misconception(
            lambda n, w: n * (w + 1) - w * (w + 1) // 2,
            "only the keys before a token are counted",
            "This window has two sides, before and after the token.",
            _WINDOW,
        ),
        Misconception(
            lambda n, w: n * w - w * w // 4,
            "w is taken for the whole width of the window",
            "w keys on either side: the window is 2w + 1 wide.",
            _WINDOW,
        ),
    ],
    hints=[
        "Suppose first that no window reaches past an end: n tokens with 2w + 1 keys each.",
        "At each end, w + (w − 1) + … + 1 pairs lie outside the text, which is w(w + 1)/2.",
    ],
)


# Layers until all have heard all.


def _mask_cases(draw: Inputs) -> Iterator[Case]:
    tokens, width = draw.whole(26, 34), draw.whole(2, 3)
    band = _pattern(tokens, width, 1, torch.zeros(tokens, dtype=torch.bool))
    yield Case(f"a window of {width} over {tokens} tokens", (band,))
    linked = band.clone()
    linked[0] = linked[-6, 5] = True
    yield Case("a window, a first token that attends to all, and a distant pair", (linked,))
    ring = torch.eye(tokens, dtype=torch.bool) | torch.eye(tokens, dtype=torch.bool).roll(1, 0)
    yield Case("a ring, in which each token attends to the one before", (ring,), edge=True)
    yield Case("a global token", (band | _cross(tokens, 7),), edge=True)
    yield Case("full attention", (torch.ones_like(band),), edge=True)


def _cross(tokens: int, at: int) -> Tensor:
    marked = torch.arange(tokens) == at
    return marked | marked[:, None]


def _layers(mask: Tensor, *, rows: slice = slice(None), squared: bool = False) -> int:
    """Steps until these rows of the reach are full."""
    reach, steps = mask.float(), 1
    while (reach[rows] == 0).any():
        reach, steps = ((reach @ (reach if squared else mask.float())) > 0).float(), steps + 1
    return steps


def _until_one(mask: Tensor) -> int:
    return min(_layers(mask, rows=slice(i, i + 1)) for i in range(len(mask)))


layers_needed = Check(
    "layers_needed",
    answer=_layers,
    cases=_mask_cases,
    misconceptions=[
        Misconception(
            lambda mask: _layers(mask) - 1,
            "the first layer is not counted",
            "The mask itself is the reach of one layer.",
            _REACH,
        ),
        Misconception(
            lambda mask: _layers(mask, squared=True),
            "the reach is multiplied by itself instead of the mask",
            "That doubles the number of layers each time; one more layer is one more step along the mask.",
            _REACH,
        ),
        Misconception(
            lambda mask: _layers(mask, rows=slice(1)),
            "only the reach of the first token is tested",
            "Every token must be reached by every other: test all rows.",
            _REACH,
        ),
        Misconception(
            _until_one,
            "one token that is reached by all others is enough",
            "A token in the middle is done long before those at the ends.",
            _REACH,
        ),
        Misconception(
            lambda mask: _layers(mask | mask.T),
            "each pair is taken to work in both directions",
            "A row says which tokens a token attends to. They need not attend to it.",
            _REACH,
        ),
        Misconception(
            lambda mask: math.ceil((len(mask) - 1) / (int(mask[0].sum()) - 1)),
            "the length is divided by the window's width",
            "That holds only for a window. Other pairs shorten the path: follow the mask.",
            _REACH,
        ),
    ],
    hints=[
        "A mask is a graph, and each layer is one step in it.",
        "The reach after one more layer: (reach.float() @ mask.float()) > 0.",
        "Begin with reach = mask and one layer; go on as long as any entry is missing.",
    ],
)


# A window with holes and a few tokens that see everything.


def _pattern_cases(draw: Inputs) -> Iterator[Case]:
    tokens, width, step = draw.whole(24, 30), draw.whole(2, 3), draw.whole(2, 3)
    nobody = torch.zeros(tokens, dtype=torch.bool)
    marked = nobody.index_fill(0, torch.tensor([0, draw.whole(10, 20)]), True)
    yield Case("a window", (tokens, width, 1, nobody))
    yield Case("a window and two global tokens", (tokens, width, 1, marked))
    yield Case("a dilated window and two global tokens", (tokens, width, step, marked))
    yield Case("a window of no key on either side", (tokens, 0, step, marked), edge=True)
    yield Case("a window that reaches past both ends", (tokens, tokens, step, nobody), edge=True)
    yield Case("global tokens alone", (tokens, width, step, ~nobody), edge=True)


def _apart(tokens: int) -> Tensor:
    position = torch.arange(tokens)
    return position[:, None] - position


def _window(tokens: int, width: int, step: int) -> Tensor:
    apart = _apart(tokens)
    return (apart.abs() <= width * step) & (apart % step == 0)


def _pattern(tokens: int, width: int, step: int, marked: Tensor) -> Tensor:
    return _window(tokens, width, step) | marked | marked[:, None]


pattern = Check(
    "pattern",
    answer=_pattern,
    cases=_pattern_cases,
    misconceptions=[
        Misconception(
            lambda n, w, step, marked: _pattern(n, w, 1, marked),
            "the dilation is left out",
            "With dilation d a token takes every d-th key.",
            _REACH,
        ),
        Misconception(
            lambda n, w, step, marked: (_apart(n).abs() <= w) & (_apart(n) % step == 0) | marked | marked[:, None],
            "the dilated window reaches no further than the plain one",
            "There are still w keys on either side, so it reaches d times as far.",
            _REACH,
        ),
        Misconception(
            lambda n, w, step, marked: _pattern(n, w * step, 1, marked),
            "the window is made wider instead of being stretched",
            "Between two keys in the window, d − 1 are left out; the number of pairs stays the same.",
            _REACH,
        ),
        Misconception(
            lambda n, w, step, marked: _window(n, w, step) | marked,
            "all tokens attend to the global tokens, but these attend only to their window",
            "Their rows are full too: a global token attends to every token.",
            _GLOBAL,
        ),
        Misconception(
            lambda n, w, step, marked: _window(n, w, step) | marked[:, None],
            "the global tokens attend to all, but only their window attends to them",
            "Their columns are full too; otherwise no token could use what they have collected.",
            _GLOBAL,
        ),
        Misconception(
            lambda n, w, step, marked: _window(n, w, step) | (marked & marked[:, None]),
            "only pairs of two global tokens are added",
            "One global token in a pair is enough: marked rows or marked columns.",
            _GLOBAL,
        ),
        Misconception(
            lambda n, w, step, marked: _window(n, w, step) & (_apart(n) >= 0) | marked | marked[:, None],
            "the window has only the side before a token",
            "The window has w keys on either side; this is not a causal mask.",
            _WINDOW,
        ),
    ],
    hints=[
        "position[:, None] - position is the distance of each pair, (n, n).",
        "A pair is in the window if the dilation divides its distance and it is at most w · dilation.",
        "marked[None] is True in whole columns, marked[:, None] in whole rows. Join all three with |.",
    ],
)
