"""Checks of the tiles of scores that a mask leaves to be computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.check.exercise import Case, Check, Inputs, Misconception
from attn_core.mechanisms.online import OnlineSoftmax

_PAGE = "chapters/10_flash"
_TILES = (_PAGE, "Tiles")
_SKIP = (_PAGE, "Skipping masked tiles")


# Attention through a window.


def _window_cases(draw: Inputs) -> Iterator[Case]:
    size, tile = draw.whole(4, 6), draw.whole(4, 6)
    for name, words, window in (
        ("a window wider than a tile", 7 * tile, tile + draw.whole(1, 3)),
        ("a length that is no multiple of the tile", 7 * tile + 1, 2 * tile),
    ):
        yield Case(name, (*draw.normal(3, words, size).unbind(0), window, tile))
    q, k, v = draw.normal(3, 5 * tile + 2, size).unbind(0)
    yield Case("a window of the word alone", (q, k, v, 0, tile), edge=True)
    yield Case("a window wider than the text", (q, k, v, 9 * tile, tile), edge=True)
    yield Case("one tile for the whole text", (q, k, v, 3, 9 * tile), edge=True)


_Way = Callable[[Tensor, Tensor, Tensor, int, int], tuple[Tensor, int]]


def _way(
    *,
    seen: Callable[[Tensor, int], Tensor] = lambda ago, window: (ago >= 0) & (ago <= window),
    first: Callable[[int, int, int], int] = lambda i, window, tile: max(0, i - window),
    further: int = 0,
    power: float = -0.5,
) -> _Way:
    """One way to visit the tiles: the keys ``seen``, the ``first`` key, ``further`` tiles, the scale's power of d."""

    def windowed(q: Tensor, k: Tensor, v: Tensor, window: int, tile: int) -> tuple[Tensor, int]:
        out, visited, position = torch.empty_like(v), 0, torch.arange(len(q))
        for i in range(0, len(q), tile):
            rows = position[i : i + tile, None]
            state = OnlineSoftmax((len(rows),), v.shape[1])
            for j in range(first(i, window, tile) // tile * tile, min(i + 1 + further * tile, len(q)), tile):
                hidden = ~seen(rows - position[j : j + tile], window)
                scores = q[i : i + tile] @ k[j : j + tile].T * q.shape[1] ** power
                state.add(scores.masked_fill(hidden, -math.inf), v[j : j + tile])
                visited += 1
            out[i : i + tile] = state.out()
        return out, visited

    return windowed


windowed = Check(
    "windowed",
    answer=_way(),
    cases=_window_cases,
    misconceptions=[
        Misconception(
            _way(seen=lambda ago, window: (ago >= 0) & (ago < window)),
            "the word exactly one window's width back is masked",
            "The window contains that many words before the word, and the word itself: one more than its width.",
            _SKIP,
        ),
        Misconception(
            _way(seen=lambda ago, window: ago <= window),
            "later words in the last tile are not masked",
            "A tile on the diagonal is needed, but half of its keys come after their queries.",
            _SKIP,
        ),
        Misconception(
            _way(seen=lambda ago, window: ago >= 0),
            "nothing is masked in the first tile that is visited",
            "It is needed for the first query of the tile, but for the later ones a part of it lies too far back.",
            _SKIP,
        ),
        Misconception(
            _way(seen=lambda ago, window: (ago > 0) & (ago <= window)),
            "the word itself is masked",
            "A word belongs to its own window.",
            _SKIP,
        ),
        Misconception(
            _way(first=lambda i, window, tile: 0),
            "every tile from the beginning of the text is visited",
            "The output is right, but no work is saved: begin with the tile that contains key i − window.",
            _SKIP,
        ),
        Misconception(
            _way(first=lambda i, window, tile: min(i, max(0, i + tile - 1 - window))),
            "the first tile is chosen by the last query of the tile of queries",
            "The first query reaches furthest back, so its window decides.",
            _SKIP,
        ),
        Misconception(
            _way(further=1),
            "one tile too many is visited on the right",
            "All its keys come after the queries, so everything in it is masked.",
            _SKIP,
        ),
        Misconception(
            _way(power=0.0),
            "the scores are not divided by √d",
            "This is ordinary attention with a mask, including the scale.",
            _TILES,
        ),
    ],
    hints=[
        "For queries from i on, the first key that counts is i − window. Round it down to the start of a tile.",
        "rows − columns is how far back a key is: mask it if that is below 0 or above the window.",
        "One OnlineSoftmax for each tile of queries; add(scores, values) for each tile of keys; out() at the end.",
    ],
)


# How many tiles a causal mask needs.


def _causal_cases(draw: Inputs) -> Iterator[Case]:
    for name in ("a chat", "another chat"):
        tile, new, old = draw.whole(2, 64), draw.whole(3, 9), draw.whole(2, 9)
        yield Case(name, (new * tile, (new + old) * tile, tile))
    yield Case("no cached words", (new * tile, new * tile, tile), edge=True)
    yield Case("one tile of queries", (tile, (1 + old) * tile, tile), edge=True)
    yield Case("tiles of one score", (new, new + old, 1), edge=True)


def _shape(queries: int, keys: int, tile: int) -> tuple[int, int]:
    return queries // tile, (keys - queries) // tile


def _counted(queries: int, keys: int, tile: int) -> int:
    new, old = _shape(queries, keys, tile)
    return new * old + new * (new + 1) // 2


causal_tiles = Check(
    "causal_tiles",
    answer=_counted,
    cases=_causal_cases,
    misconceptions=[
        Misconception(
            lambda queries, keys, tile: queries * keys // tile**2,
            "all tiles are counted",
            "Tiles in which every key comes after its query are skipped.",
            _SKIP,
        ),
        Misconception(
            lambda queries, keys, tile: _counted(queries, queries, tile),
            "the tiles of the cached words are left out, as with a mask that is aligned top-left",
            "Aligned bottom-right, the last query attends to the last key, and each new word to all cached ones.",
            _SKIP,
        ),
        Misconception(
            lambda queries, keys, tile: _counted(queries, keys, tile) - queries // tile,
            "the tiles on the diagonal are left out",
            "They are half masked but still needed.",
            _SKIP,
        ),
        Misconception(
            lambda queries, keys, tile: _counted(queries, keys, tile) - queries / tile / 2,
            "each tile on the diagonal is counted as half a tile",
            "It is computed completely, and then half of it is masked.",
            _SKIP,
        ),
        Misconception(
            lambda queries, keys, tile: queries * keys / tile**2 / 2,
            "half of all tiles are counted",
            "Half of the square is masked only if there are as many keys as queries and the tiles are small.",
            _SKIP,
        ),
        Misconception(
            lambda queries, keys, tile: _counted(queries, keys, 1),
            "scores are counted instead of tiles",
            "Divide the lengths by the size of a tile first.",
            _TILES,
        ),
        Misconception(
            lambda queries, keys, tile: _shape(queries, keys, tile)[1] + _counted(queries, queries, tile),
            "the tiles of cached words are counted for only one tile of queries",
            "Each tile of queries needs all of them.",
            _SKIP,
        ),
    ],
    hints=[
        "Count in tiles: a = T/t tiles of queries, b = (S − T)/t tiles of cached keys.",
        "The i-th tile of queries, counted from one, needs b tiles of cached keys and i of new ones. Sum over i.",
    ],
)


# Which tiles any mask needs.


def _mask_cases(draw: Inputs) -> Iterator[Case]:
    tile, rows, columns = draw.whole(3, 5), draw.whole(3, 4), draw.whole(5, 6)
    kind = draw.ids(3, rows, columns)  # of a tile: hidden, in part, seen
    kind.view(-1)[:3] = torch.arange(3)
    kind = kind.repeat_interleave(tile, 0).repeat_interleave(tile, 1)
    mask = (kind == 2) | ((kind == 1) & (draw.uniform(*kind.shape) < 0.4))
    yield Case("a mask with tiles of all kinds", (mask, tile))
    yield Case("a causal mask", (torch.ones_like(mask).tril(mask.shape[1] - mask.shape[0]), tile))
    yield Case("sides that are no multiples of the tile", (mask[: 1 - tile, :-1], tile), edge=True)
    last = torch.zeros(2 * tile + 1, tile + 1, dtype=torch.bool)
    last[-1, -1] = True
    yield Case("one True, in the last corner", (last, tile), edge=True)
    yield Case("a tile larger than the mask", (mask, 9 * tile), edge=True)


def _cut(mask: Tensor, tile: int, fill: bool = False) -> Tensor:
    """The mask by tiles, (rows, columns, tile · tile)."""
    high, wide = (-side % tile for side in mask.shape)
    whole = functional.pad(mask, (0, wide, 0, high), value=fill)
    return whole.unflatten(1, (-1, tile)).unflatten(0, (-1, tile)).transpose(1, 2).flatten(2)


needed_tiles = Check(
    "needed_tiles",
    answer=lambda mask, tile: _cut(mask, tile).any(2),
    cases=_mask_cases,
    misconceptions=[
        Misconception(
            lambda mask, tile: _cut(mask, tile).all(2),
            "only completely visible tiles are counted as needed",
            "A partly masked tile must be computed too; then a part of it is masked.",
            _SKIP,
        ),
        Misconception(
            lambda mask, tile: mask[::tile, ::tile],
            "only the first score of a tile is tested",
            "One True anywhere in a tile is enough for it to be needed.",
            _SKIP,
        ),
        Misconception(
            lambda mask, tile: _cut(mask, tile).float().mean(2) > 0.5,
            "a tile is counted as needed if most of it is visible",
            "A tile with a single visible score must be computed.",
            _SKIP,
        ),
        Misconception(
            lambda mask, tile: _cut(mask[: len(mask) // tile * tile, : mask.shape[1] // tile * tile], tile).any(2),
            "the last tiles, which are not full, are dropped",
            "The last queries and keys are in smaller tiles of their own.",
            _TILES,
        ),
        Misconception(
            lambda mask, tile: _cut(mask, tile, fill=True).any(2),
            "the padding of the last tiles counts as visible",
            "Pad with False: positions past the end are not needed.",
            _TILES,
        ),
        Misconception(
            lambda mask, tile: _cut(mask, tile).any(2).mT,
            "the axes of the result are exchanged",
            "A row of the result is a tile of queries, as in the mask.",
            _TILES,
        ),
        Misconception(
            lambda mask, tile: _cut(mask, tile).sum(2),
            "the scores in each tile are counted",
            "The result says whether a tile is needed: True or False.",
            _SKIP,
        ),
    ],
    hints=[
        "A loop over the tiles, with range(0, len(mask), tile) for the rows, and any() in each, is good enough.",
        "A slice that runs past the end just stops there: the last tiles need no special treatment.",
    ],
)
