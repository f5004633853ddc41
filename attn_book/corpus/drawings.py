"""Generated pictures of coloured shapes on a grid, with captions and the regions of the objects that they name.

In a *scene*, the caption names the coloured objects from left to right ("a red circle left of a blue square"), and not
the grey ones. In a *marked* picture all objects are coloured, and the caption names only the one in a frame ("a red
circle"). A caption therefore follows from its picture, and each word for a colour or a shape has true regions, against
which attention can be scored.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.data.batches import Batch, EpochBatches, pad
from attn_book.data.vocab import Vocab
from attn_core.contract import check_integer, is_number, kind

SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring", "star", "bar")

SCALES = (0.84, 0.92, 1.0)
"""The sizes of each shape, as shares of its tile."""

COLOURS = {
    "red": (0.84, 0.13, 0.15),
    "orange": (0.96, 0.55, 0.08),
    "yellow": (0.95, 0.86, 0.12),
    "green": (0.13, 0.60, 0.25),
    "cyan": (0.20, 0.76, 0.82),
    "blue": (0.13, 0.29, 0.80),
    "purple": (0.49, 0.18, 0.65),
    "pink": (0.96, 0.56, 0.76),
}
"""Red, green and blue of each named colour, from 0 to 1."""

HELD_PAIRS = tuple((colour, SHAPES[(3 * i + 1) % 8]) for i, colour in enumerate(COLOURS))
"""Eight (colour, shape) pairs to hold out of training, with each colour and each shape once."""

TRAINED_PAIRS = tuple((c, s) for c in COLOURS for s in SHAPES if (c, s) not in HELD_PAIRS)

SIZE = 48
"""The side of every picture, in pixels."""

CELLS = 4
"""The number of cells along a side; each cell has room for one object."""

_CELL = SIZE // CELLS
_TILE = _CELL - 2  # the side of the square that an object fills, anywhere in its cell
PAPER = 0.95
"""The value of the paper, in each of red, green and blue."""

_GREY, _FRAME = (0.62, 0.62, 0.62), (0.1, 0.1, 0.1)


@dataclass(frozen=True, eq=False)
class Drawings:
    """N pictures, with K named objects in each.

    ``images (N, 3, 48, 48)`` are float32 from 0 to 1. ``masks (N, K, 48, 48)`` are True on each named object, in the
    order of the caption. ``colours`` and ``shapes``, both ``(N, K)``, are indices into ``COLOURS`` and ``SHAPES``, and
    ``captions`` holds the words.
    """

    images: Tensor
    masks: Tensor
    colours: Tensor
    shapes: Tensor
    captions: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.images)

    def boxes(self) -> Tensor:
        """The box around each named object, ``(N, K, 4)`` in pixels: left, top, right, bottom, ends exclusive."""
        sides = []
        for axis in (-2, -1):  # first the columns, then the rows, in which the object has a pixel
            covered = self.masks.any(axis).int()
            sides.append((covered.argmax(-1), SIZE - covered.flip(-1).argmax(-1)))
        (left, right), (top, bottom) = sides
        return torch.stack([left, top, right, bottom], -1)

    def links(self, patch_size: int = 8) -> list[frozenset[tuple[int, int]]]:
        """The true pairs (region, word) of each caption, for square regions of ``patch_size`` pixels, row by row.

        A word for a colour or a shape is linked to the regions that hold at least a tenth of its object's area; the
        other words have no links.

        Raises:
            ValueError: if ``patch_size`` does not divide 48.
        """
        regions = _regions(patch_size)
        area = functional.avg_pool2d(self.masks.float(), patch_size).flatten(2) * patch_size**2
        linked = (area >= area.sum(-1, keepdim=True) / 10).tolist()
        return [
            frozenset((r, word) for word, k in _named(caption) for r in range(regions) if linked[i][k][r])
            for i, caption in enumerate(self.captions)
        ]


def centred(images: Tensor) -> Tensor:
    """Images from 0 to 1, shifted and scaled for a model's input, of the same shape: paper becomes 0 and black −3.8.

    Without this, the paper's value of 0.95 outweighs what is drawn on it, and a convolution's padding looks like ink.

    Raises:
        ValueError: if the images are not a floating tensor.
    """
    if not isinstance(images, Tensor) or not images.dtype.is_floating_point:
        raise ValueError(f"images: expected a floating tensor, got {kind(images)}")
    return (images - PAPER) / 0.25


class DrawingBatches(EpochBatches[Batch]):
    """Batches of pictures in the form that ``Batches`` has for sentences.

    ``source (B, 3, 48, 48)`` holds ``centred`` images, and ``source_lengths (B,)`` counts the square regions of
    ``patch_size`` pixels in each. The targets are the captions.

    Raises:
        ValueError: if ``batch_size`` is below 1, ``patch_size`` does not divide 48, or the seed is neither None nor an
            integer of at least 0.
    """

    def __init__(
        self, drawings: Drawings, vocab: Vocab, *, batch_size: int, patch_size: int = 8, seed: int | None = None
    ) -> None:
        super().__init__(len(drawings), batch_size, seed)
        self.drawings, self._regions = drawings, _regions(patch_size)
        words = [torch.tensor([Vocab.BOS, *vocab.encode(caption), Vocab.EOS]) for caption in drawings.captions]
        self._lengths = torch.tensor([len(ids) - 1 for ids in words])
        self._targets = pad(words)

    def _epoch(self, number: int) -> Iterator[Batch]:
        order = torch.tensor(self._order(len(self.drawings), number))
        return (self._batch(rows) for rows in order.split(self.batch_size))

    def _batch(self, rows: Tensor) -> Batch:
        lengths = self._lengths[rows]
        words = self._targets[rows, : int(lengths.max()) + 1]
        target_in = words[:, :-1].masked_fill(words[:, :-1] == Vocab.EOS, Vocab.PAD)
        regions = torch.full((len(rows),), self._regions)
        return Batch(centred(self.drawings.images[rows]), regions, target_in, words[:, 1:], lengths)


def draw_scenes(
    count: int,
    *,
    objects: int = 2,
    distractors: int = 2,
    noise: float = 0.05,
    pairs: Collection[tuple[str, str]] = TRAINED_PAIRS,
    seed: int = 0,
) -> Drawings:
    """Draw ``count`` scenes of coloured ``objects``, named from left to right by the caption, and grey ``distractors``.

    In a caption, "left of" connects two neighbours, or "above" or "below" if their vertical distance is larger than
    their horizontal one. Colours and shapes are combined as in ``pairs``, and no picture has a pair twice. Gaussian
    noise with standard deviation ``noise`` is added to each value of each pixel. The same seed draws the same pictures.

    Raises:
        ValueError: if a count is out of range, there are more objects than cells or pairs, a pair is unknown, or the
            seed is not an integer of at least 0.
    """
    return _draw(count, objects, distractors, noise, pairs, seed, marked=False)


def draw_marked(
    count: int,
    *,
    objects: int = 4,
    noise: float = 0.05,
    pairs: Collection[tuple[str, str]] = TRAINED_PAIRS,
    seed: int = 0,
) -> Drawings:
    """Draw ``count`` pictures of coloured ``objects``, one of them in a frame; the caption names only that one.

    The other arguments are those of ``draw_scenes``; all objects, not only the named one, are taken from ``pairs``.

    Raises:
        ValueError: as ``draw_scenes``.
    """
    return _draw(count, objects, 0, noise, pairs, seed, marked=True)


def _draw(
    count: int,
    objects: int,
    distractors: int,
    noise: float,
    pairs: Collection[tuple[str, str]],
    seed: int,
    *,
    marked: bool,
) -> Drawings:
    allowed = _checked(count, objects, distractors, noise, pairs, seed)
    generator = torch.Generator().manual_seed(seed)
    drawn = objects + distractors

    def choose(most: int, size: int) -> Tensor:
        """Different numbers below ``most`` for each picture: ``(count, size)``."""
        return torch.rand(count, most, generator=generator).argsort(1)[:, :size]

    def roll(sides: int, *shape: int) -> Tensor:
        return torch.randint(sides, (count, *shape), generator=generator)

    # Cells are numbered column by column, so that their order is the order of naming.
    cells = choose(CELLS**2, drawn)
    if not marked:
        cells = torch.cat([cells[:, :objects].sort(1).values, cells[:, objects:]], 1)
    columns, rows = cells // CELLS, cells % CELLS
    colours, shapes = allowed[choose(len(allowed), objects)].unbind(-1)
    shapes = torch.cat([shapes, roll(len(SHAPES), distractors)], 1)
    inks = torch.cat([torch.tensor([*COLOURS.values()])[colours], torch.tensor(_GREY).expand(count, distractors, 3)], 1)
    inks = inks + 0.12 * (torch.rand(count, drawn, 1, generator=generator) - 0.5)
    covered = tiles(_TILE)[shapes, roll(len(SCALES), drawn)]
    jitter = roll(_CELL - _TILE + 1, drawn, 2)
    lefts, tops = columns * _CELL + jitter[..., 0], rows * _CELL + jitter[..., 1]

    named = 1 if marked else objects
    images = torch.full((count, SIZE, SIZE, 3), PAPER)
    masks = torch.zeros(count, named, SIZE, SIZE, dtype=torch.bool)
    every = torch.arange(count)[:, None, None]
    if marked:
        frame = functional.pad(torch.zeros(_CELL - 2, _CELL - 2), (1, 1, 1, 1), value=1.0).expand(count, -1, -1)
        paste(images, frame, columns[:, 0] * _CELL, rows[:, 0] * _CELL, torch.tensor(_FRAME).expand(count, 3))
    for k in range(drawn):
        ys, xs = paste(images, covered[:, k], lefts[:, k], tops[:, k], inks[:, k])
        if k < named:
            masks[every, k, ys, xs] = covered[:, k] >= 0.5
    images += noise * torch.randn(images.shape, generator=generator)
    images = images.clamp_(0, 1).permute(0, 3, 1, 2).contiguous()
    colours, shapes = colours[:, :named], shapes[:, :named]
    words = zip(colours.tolist(), shapes.tolist(), columns.tolist(), rows.tolist(), strict=True)
    return Drawings(images, masks, colours, shapes, tuple(_caption(*picture) for picture in words))


def paste(images: Tensor, tiles: Tensor, lefts: Tensor, tops: Tensor, inks: Tensor) -> tuple[Tensor, Tensor]:
    """Paint ink on each picture, in place, as far as its tile ``(N, n, n)`` covers each pixel.

    Returns the rows and the columns of the painted pixels, which together index ``(N, n, n)`` of them.
    """
    side = torch.arange(tiles.shape[1])
    every = torch.arange(len(images))[:, None, None]
    ys, xs = tops[:, None, None] + side[:, None], lefts[:, None, None] + side
    under = images[every, ys, xs]
    images[every, ys, xs] = under + tiles[..., None] * (inks[:, None, None] - under)
    return ys, xs


def _caption(colours: list[int], shapes: list[int], columns: list[int], rows: list[int]) -> tuple[str, ...]:
    names = tuple(COLOURS)
    words: list[str] = []
    for k, (colour, shape) in enumerate(zip(colours, shapes, strict=True)):
        if k:
            right, down = columns[k] - columns[k - 1], rows[k] - rows[k - 1]
            words += ["left", "of"] if right >= abs(down) else ["above"] if down > 0 else ["below"]
        words += ["an" if names[colour] == "orange" else "a", names[colour], SHAPES[shape]]
    return tuple(words)


def _named(caption: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """The position of each word for a colour or a shape, with the number of the object that it names."""
    k = -1
    for word, text in enumerate(caption):
        k += text in COLOURS
        if text in COLOURS or text in SHAPES:
            yield word, k


def _regions(patch_size: int) -> int:
    check_integer("patch_size", patch_size)
    if SIZE % patch_size:
        raise ValueError(f"patch_size: expected a number that divides {SIZE}, got {patch_size}")
    return (SIZE // patch_size) ** 2


def _checked(
    count: int, objects: int, distractors: int, noise: float, pairs: Collection[tuple[str, str]], seed: int
) -> Tensor:
    """Check every argument; return the pairs as indices ``(P, 2)``."""
    check_integer("count", count)
    check_integer("objects", objects)
    check_integer("seed", seed, at_least=0)
    check_integer("distractors", distractors, at_least=0)
    if objects + distractors > CELLS**2:
        raise ValueError(f"objects: expected {CELLS**2} at most with distractors, got {objects + distractors}")
    if not (is_number(noise) and math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise: expected a finite number of at least 0, got {noise!r}")
    return wanted_pairs(pairs, objects)


def wanted_pairs(pairs: Collection[tuple[str, str]], objects: int) -> Tensor:
    """The pairs of a colour and a shape as indices ``(P, 2)``, sorted and each once.

    Raises:
        ValueError: if a pair is unknown, or there are fewer than ``objects``.
    """
    for pair in pairs if isinstance(pairs, Iterable) else [pairs]:
        if not (isinstance(pair, tuple) and len(pair) == 2 and pair[0] in COLOURS and pair[1] in SHAPES):
            raise ValueError(f"pairs: expected (colour, shape) out of COLOURS and SHAPES, got {pair!r}")
    if len(set(pairs)) < objects:
        raise ValueError(f"pairs: expected {objects} at least, one for each object, got {len(set(pairs))}")
    names = list(COLOURS)
    return torch.tensor([[names.index(colour), SHAPES.index(shape)] for colour, shape in sorted(set(pairs))])


def tiles(side: int) -> Tensor:
    """How much of each pixel each shape covers at each scale: ``(8, 3, side, side)``, from 0 to 1."""
    fine = 8  # points to a pixel's side
    line = (torch.arange(side * fine) + 0.5) * 2 / (side * fine) - 1
    covered = []
    for scale in SCALES:
        x, y = line[None] / scale, line[:, None] / scale  # y downwards
        inside = torch.stack([_inside(shape, x, y) for shape in SHAPES])
        covered.append(functional.avg_pool2d(inside.float(), fine))
    return torch.stack(covered, 1)


def _inside(shape: str, x: Tensor, y: Tensor) -> Tensor:
    """Whether points lie in a shape that fills the square from −1 to 1; ``y`` points downwards."""
    radius, wide, high = (x**2 + y**2).sqrt(), x.abs() + 0 * y, y.abs() + 0 * x
    if shape == "circle":
        return radius <= 0.9
    if shape == "ring":
        return (radius <= 0.98) & (radius >= 0.55)
    if shape == "square":
        return torch.maximum(wide, high) <= 0.8
    if shape == "diamond":
        return wide + high <= 1.0
    if shape == "triangle":
        return (y <= 0.8) & (wide <= (y + 0.95) * 0.55)
    if shape == "cross":
        return (torch.minimum(wide, high) <= 0.26) & (torch.maximum(wide, high) <= 0.95)
    if shape == "bar":
        return (wide <= 0.98) & (high <= 0.3)
    # A star: fold it onto half of one of its five points; inside is then the centre's side of one edge.
    fold = 2 * math.pi / 5
    angle = torch.atan2(x + 0 * y, -y + 0 * x).remainder(fold)
    angle = torch.minimum(angle, fold - angle)
    across, along = radius * angle.sin(), radius * angle.cos()
    inner = 0.42 * torch.tensor([math.sin(fold / 2), math.cos(fold / 2)])
    return (1.05 - along) * inner[0] >= (1.05 - inner[1]) * across
