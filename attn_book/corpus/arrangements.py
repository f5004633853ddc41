"""Small pictures of one or two coloured shapes, with captions such as "a red circle left of a blue square".

A caption fixes what is drawn and in which order, so a picture that a model paints for it can be judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attn_book.corpus.drawings import COLOURS, PAPER, SHAPES, TRAINED_PAIRS, paste, tiles, wanted_pairs
from attn_core.contract import check_integer, check_share, kind

SIDE = 32
"""The side of every picture, in pixels."""

RELATIONS = ("left of", "right of", "above", "below")

_CELL, _TILE = SIDE // 2, 14  # a picture has four cells, and an object fills a tile somewhere in its cell
_SHIFTS = _CELL - _TILE + 1


@dataclass(frozen=True, eq=False)
class Arrangements:
    """N pictures with one or two objects each.

    ``images (N, 3, 32, 32)`` are float32 from 0 to 1. ``masks (N, 2, 32, 32)`` are True on each object. ``colours`` and
    ``shapes``, both ``(N, 2)``, are indices into ``COLOURS`` and ``SHAPES``, and ``relations (N,)`` into ``RELATIONS``;
    where a picture has one object, the mask of the second is empty and its indices are −1. ``captions`` holds the
    words.
    """

    images: Tensor
    masks: Tensor
    colours: Tensor
    shapes: Tensor
    relations: Tensor
    captions: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.images)

    def named(self, picture: int) -> Iterator[tuple[int, int]]:
        """The place of each word for a colour or a shape in a caption, with the number of its object."""
        k = -1
        for place, word in enumerate(self.captions[picture]):
            k += word in COLOURS
            if word in COLOURS or word in SHAPES:
                yield place, k


def draw_arrangements(
    count: int, *, pairs: Collection[tuple[str, str]] = TRAINED_PAIRS, single: float = 0.2, seed: int = 0
) -> Arrangements:
    """Draw ``count`` pictures: a share ``single`` of them with one object, the others with two, in two of four cells.

    The relation of two objects is drawn first; the cells agree with it, and may also differ along the other axis.
    Colours and shapes are combined as in ``pairs``, and no picture has a pair twice. The same seed draws the same.

    Raises:
        ValueError: if ``count`` is below 1, ``single`` not a share, a pair unknown or alone, or the seed not an integer
            of at least 0.
    """
    check_integer("count", count)
    check_integer("seed", seed, at_least=0)
    check_share("single", single)
    allowed = wanted_pairs(pairs, 2)
    generator = torch.Generator().manual_seed(seed)

    def roll(sides: int, *shape: int) -> Tensor:
        return torch.randint(sides, (count, *shape), generator=generator)

    colours, shapes = allowed[torch.rand(count, len(allowed), generator=generator).argsort(1)[:, :2]].unbind(-1)
    relations = roll(len(RELATIONS))
    first = relations % 2  # 0 for "left of" and "above": the first object stands at the smaller coordinate
    ordered, free = torch.stack([first, 1 - first], 1), roll(2, 2)
    is_across = (relations < 2)[:, None]
    columns, rows = torch.where(is_across, ordered, free), torch.where(is_across, free, ordered)
    alone = torch.rand(count, generator=generator) < single
    columns = torch.where(alone[:, None], roll(2, 2), columns)
    lefts, tops = columns * _CELL + roll(_SHIFTS, 2), rows * _CELL + roll(_SHIFTS, 2)
    inks = torch.tensor([*COLOURS.values()])[colours] + 0.12 * (torch.rand(count, 2, 1, generator=generator) - 0.5)
    covered = tiles(_TILE)[shapes, roll(3, 2)]
    covered[:, 1] *= ~alone[:, None, None]

    images = torch.full((count, SIDE, SIDE, 3), PAPER)
    masks = torch.zeros(count, 2, SIDE, SIDE, dtype=torch.bool)
    every = torch.arange(count)[:, None, None]
    for k in range(2):
        ys, xs = paste(images, covered[:, k], lefts[:, k], tops[:, k], inks[:, k])
        masks[every, k, ys, xs] = covered[:, k] >= 0.5
    for indices in (colours, shapes):
        indices[alone, 1] = -1
    relations = relations.masked_fill(alone, -1)
    captions = (
        _caption(*picture) for picture in zip(colours.tolist(), shapes.tolist(), relations.tolist(), strict=True)
    )
    images = images.clamp_(0, 1).permute(0, 3, 1, 2).contiguous()
    return Arrangements(images, masks, colours, shapes, relations, tuple(captions))


def _caption(colours: list[int], shapes: list[int], relation: int) -> tuple[str, ...]:
    names = tuple(COLOURS)
    words: list[str] = []
    for k in range(1 if relation < 0 else 2):
        words += RELATIONS[relation].split() if k else []
        words += ["an" if names[colours[k]] == "orange" else "a", names[colours[k]], SHAPES[shapes[k]]]
    return tuple(words)


@dataclass(frozen=True)
class Seen:
    """An object in a picture: indices of its colour and shape, and the row and column of its cell."""

    colour: int
    shape: int
    row: int
    column: int


def recognise(images: Tensor) -> list[list[Seen]]:
    """The objects of each picture ``(N, 3, 32, 32)``, cell by cell.

    Each cell is compared with every object in each size and place, and with empty paper; the nearest, by the squares of
    the differences, is taken. A cell of noise is therefore recognised as something, by chance the right one of 64.

    Raises:
        ValueError: if the images are not floating tensors of that shape.
    """
    if not isinstance(images, Tensor) or not images.dtype.is_floating_point or images.shape[1:] != (3, SIDE, SIDE):
        raise ValueError(f"images: expected a floating tensor (N, 3, {SIDE}, {SIDE}), got {kind(images)}")
    inks = torch.tensor([*COLOURS.values()])
    shapes = tiles(_TILE)  # (8, 3, 14, 14)
    placed = torch.zeros(*shapes.shape[:2], _SHIFTS, _SHIFTS, _CELL, _CELL)
    for down in range(_SHIFTS):
        for right in range(_SHIFTS):
            placed[:, :, down, right, down : down + _TILE, right : right + _TILE] = shapes
    ink = (inks - PAPER)[:, None, None, None, None, :, None, None]  # (8, 1, 1, 1, 1, 3, 1, 1)
    objects = (PAPER + ink * placed[None, :, :, :, :, None]).flatten(5).flatten(2, 4)  # (colour, shape, place, pixel)
    every = torch.cat([objects.flatten(0, 2), torch.full((1, objects.shape[-1]), PAPER)])
    cells = images.unflatten(-1, (2, _CELL)).unflatten(-3, (2, _CELL)).permute(0, 2, 4, 1, 3, 5).flatten(3)
    nearest = torch.cdist(cells.float().flatten(0, 2), every).argmin(-1).view(-1, 2, 2)
    a_shape = objects.shape[2]
    a_colour = a_shape * len(SHAPES)
    return [
        [
            Seen(best // a_colour, best % a_colour // a_shape, row, column)
            for row, line in enumerate(picture)
            for column, best in enumerate(line)
            if best < len(every) - 1
        ]
        for picture in nearest.tolist()
    ]


def judged(images: Tensor, wanted: Arrangements) -> dict[str, float]:
    """How far pictures ``(N, 3, 32, 32)`` show what the captions of ``wanted`` ask for, as shares from 0 to 1.

    ``colour``, ``shape`` and ``object`` count the objects whose colour, shape or both are somewhere in the picture;
    ``all`` the pictures with every object; ``placed`` those that also have them in the right order and nothing else.

    Raises:
        ValueError: as ``recognise``, or if there are not as many pictures as captions.
    """
    found = recognise(images)
    if len(found) != len(wanted):
        raise ValueError(f"images: expected {len(wanted)}, one for each caption, got {len(found)}")
    counts = dict.fromkeys(("colour", "shape", "object", "all", "placed"), 0)
    objects = 0
    for i, seen in enumerate(found):
        asked = [(c, s) for c, s in zip(wanted.colours[i].tolist(), wanted.shapes[i].tolist(), strict=True) if c >= 0]
        objects += len(asked)
        shown = {(one.colour, one.shape): one for one in seen}
        counts["colour"] += sum(any(c == one.colour for one in seen) for c, _ in asked)
        counts["shape"] += sum(any(s == one.shape for one in seen) for _, s in asked)
        counts["object"] += sum(pair in shown for pair in asked)
        if all(pair in shown for pair in asked):
            counts["all"] += 1
            places = [shown[pair] for pair in asked]
            counts["placed"] += len(seen) == len(asked) and _in_order(places, int(wanted.relations[i]))
    return {
        name: number / (objects if name in ("colour", "shape", "object") else len(wanted))
        for name, number in counts.items()
    }


def _in_order(places: list[Seen], relation: int) -> bool:
    if relation < 0:
        return True
    first, second = ((one.column if relation < 2 else one.row) for one in places)
    return first < second if relation % 2 == 0 else first > second
