"""The check of the tiles of scores that a mask leaves to be computed."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_PAGE = "chapters/10_flash"
_TILES = (_PAGE, "Tiles")


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
            _TILES,
        ),
        Misconception(
            lambda mask, tile: mask[::tile, ::tile],
            "only the first score of a tile is tested",
            "One True anywhere in a tile is enough for it to be needed.",
            _TILES,
        ),
        Misconception(
            lambda mask, tile: _cut(mask, tile).float().mean(2) > 0.5,
            "a tile is counted as needed if most of it is visible",
            "A tile with a single visible score must be computed.",
            _TILES,
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
            _TILES,
        ),
    ],
    hints=[
        "A loop over the tiles, with range(0, len(mask), tile) for the rows, and any() in each, is good enough.",
        "A slice that runs past the end just stops there: the last tiles need no special treatment.",
    ],
)
