"""Attention over the patches of images, from a class token, a patch or a word of a caption."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import traitlets

from attn_book.maps import Maps, read_maps, read_tokens
from attn_book.plots import MARK, visible
from attn_book.widgets.base import Joined, StaticWidget, check_whole, from_base64, png_of, to_base64

# As in patch_picture.js: the veil over a patch without weight, which keeps a third of its light, and how many of the
# greatest weights are outlined.
_VEIL, _VEIL_SHARE, _OUTLINED = (16, 18, 26), 0.65, 3
_FINE = 16_384


class PatchAttentionExplorer(StaticWidget):
    """Images whose patches are dimmed where the selected query of a vision Transformer or captioner has little weight.

    Shapes: images `(N, H, W, 3)`, uint8, or floating from 0 to 1, with sides that `patch_size` divides; the R patches
    of each are numbered row by row. `weights` has for each image one entry that `attn_book.maps.read_maps` takes,
    `(Q, R)` to `(L, H, Q, R)`, with the same L and H for all. A row may sum to less than 1, because a class token's own
    weight is left out. `queries` has for each image the Q words of its caption; without it the queries are the patches
    themselves, after a class token if Q is R + 1. `answers` has for each image a text that is shown with it. `image`,
    `layer` and `query`, counted from 0, and `head`, None for the mean over the heads, are shown first.

    The traits `image`, `layer`, `head` (−1 for the mean) and `query` are synced, to observe and to link. A weight is
    stored as one of 255 steps of its row's greatest, so it is off by at most 1/510 of that; up to 16,384 weights in all
    are stored as one of 65,535 steps.

    Raises:
        ValueError: if an argument, or a value that a trait is set to, does not fit. The message names it.

    Source: Xu et al. 2015, figures 2 and 3; Dosovitskiy et al. 2021, section 4.5.
    """

    _esm = Joined("page.js", "patch_picture.js", "patch_attention.js")
    _css = Joined("page.css", "patch_attention.css")
    _said = ("title", "layers", "answers")

    title = traitlets.Unicode().tag(sync=True, static=True)
    pixels = traitlets.Unicode().tag(sync=True, static=True)
    height = traitlets.Int(1).tag(sync=True, static=True)
    width = traitlets.Int(1).tag(sync=True, static=True)
    patch_size = traitlets.Int(1).tag(sync=True, static=True)
    layers = traitlets.List(traitlets.Unicode()).tag(sync=True, static=True)
    heads = traitlets.Int(1).tag(sync=True, static=True)
    queries: traitlets.List[list[str]] = traitlets.List().tag(sync=True, static=True)
    lengths: traitlets.List[int] = traitlets.List().tag(sync=True, static=True)
    bits = traitlets.Int(8).tag(sync=True, static=True)
    codes = traitlets.Unicode().tag(sync=True, static=True)
    tops = traitlets.Unicode().tag(sync=True, static=True)
    answers: traitlets.List[str] = traitlets.List().tag(sync=True, static=True)
    image = traitlets.TraitType[Any, Any](0).tag(sync=True, static=True)  # whole numbers, as _within has it
    layer = traitlets.TraitType[Any, Any](0).tag(sync=True, static=True)
    head = traitlets.TraitType[Any, Any](-1).tag(sync=True, static=True)
    query = traitlets.TraitType[Any, Any](0).tag(sync=True, static=True)

    def __init__(
        self,
        images: Any,
        weights: Iterable[Any],
        *,
        patch_size: int,
        queries: Iterable[Iterable[str]] | None = None,
        answers: Iterable[str] | None = None,
        title: str = "Attention over patches",
        image: int = 0,
        layer: int = 0,
        head: int | None = None,
        query: int = 0,
    ) -> None:
        if not isinstance(title, str):
            raise ValueError(f"title: expected a string, got {title!r}")
        pixels = _read_images(images)
        count, height, width = pixels.shape[:3]
        patch_size = check_whole("patch_size", patch_size, 1, min(height, width))
        if height % patch_size or width % patch_size:
            raise ValueError(
                f"patch_size: expected a divisor of {height} and {width}, the images' sides, got {patch_size}"
            )
        patches = (height // patch_size) * (width // patch_size)
        maps = _read_weights(weights, count, patches)
        lengths = [one.weights.shape[2] for one in maps]
        rows = np.concatenate([one.weights.reshape(-1, patches) for one in maps]).astype(np.float64)
        bits = 16 if rows.size <= _FINE else 8
        tops = rows.max(1).astype("<f4")
        shares = rows / np.maximum(tops[:, None], np.finfo(np.float32).tiny)
        codes = np.rint(shares * (2**bits - 1)).astype(f"<u{bits // 8}")
        super().__init__(
            title=title,
            pixels=to_base64(pixels),
            height=height,
            width=width,
            patch_size=patch_size,
            layers=list(maps[0].layers),
            heads=maps[0].weights.shape[1],
            queries=_read_queries(queries, lengths, patches),
            lengths=lengths,
            bits=bits,
            codes=to_base64(codes),
            tops=to_base64(tops),
            answers=[] if answers is None else _read_answers(answers, count),
            image=image,
            layer=layer,
            head=-1 if head is None else check_whole("head", head, 0, maps[0].weights.shape[1] - 1),
            query=query,
        )

    def __repr__(self) -> str:
        shape = f"layers={len(self.layers)}, heads={self.heads}, patches={self._patches()}"
        return f"PatchAttentionExplorer(images={len(self.lengths)}, {shape})"

    @traitlets.validate("image", "layer", "head", "query")
    def _within(self, proposal: Any) -> int:
        name = proposal["trait"].name
        counts = {"image": len(self.lengths), "layer": len(self.layers), "head": self.heads}
        if name == "query":
            counts["query"] = self.lengths[check_whole("image", self.image, 0, counts["image"] - 1)]
        return check_whole(name, proposal["value"], -1 if name == "head" else 0, counts[name] - 1)

    @traitlets.observe("image")
    def _stay(self, _: Any) -> None:
        self.query = min(self.query, self.lengths[self.image] - 1)

    def grid(self) -> np.ndarray:
        """Return the weights that are shown, `(Q, R)` float64, a row for each query, with the widget's precision."""
        maps = self._maps()
        return np.asarray(maps.mean(0) if self.head < 0 else maps[self.head])

    def describe(self) -> str:
        """Describe the drawing, with the three patches of greatest weight for the selected query."""
        row, across = self.grid()[self.query], self.width // self.patch_size
        best = [int(r) for r in np.argsort(-row, kind="stable")[:_OUTLINED] if row[r] > 0]
        looks = [f"row {r // across}, column {r % across} ({100 * row[r]:.1f} %)" for r in best]
        which = f"image {self.image} of 0 to {len(self.lengths) - 1}" if len(self.lengths) > 1 else "an image"
        said = (
            f"{self.title or 'Attention over patches'}: {which}, {self._patches() // across} rows of {across} patches, "
            f"dimmed where the weight is small. {self._heading()}. Greatest weights: {', '.join(looks) or 'none'}."
        )
        return f"{said} {self.answers[self.image]}" if self.answers else said

    def picture(self) -> bytes:
        """Draw the image, and the selected query's attention in it, for each head too, as a PNG."""
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle

        size, across, row = self.patch_size, self.width // self.patch_size, self.grid()[self.query]
        heads = self._maps()[:, self.query] if self.heads > 1 else np.empty((0, self._patches()))
        few = min(8, max(1, len(heads)))
        lines = -(-len(heads) // few)
        figure = Figure(figsize=(6.4, 3.5 + 0.95 * lines), dpi=80, layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=(3.5, 0.95 * lines)) if lines else [figure]
        plain, seen = parts[0].subplots(1, 2)
        plain.imshow(self._image(), interpolation="nearest")
        seen.imshow(self._dimmed(row), interpolation="nearest")
        # Not wrap=True, with which Matplotlib reads dollars as formulas despite parse_math.
        seen.set_title(textwrap.fill(visible(self._heading(), 160), 44), fontsize=9.5, parse_math=False)
        for r in np.flatnonzero([w > 0 and (row > w).sum() < _OUTLINED for w in row]):
            place = (r % across * size - 0.5, r // across * size - 0.5)
            for colour, wide in (("white", 3.6), (MARK, 2.0)):
                seen.add_patch(Rectangle(place, size, size, fill=False, edgecolor=colour, linewidth=wide))
        panels = list(parts[1].subplots(lines, few, squeeze=False).flat) if lines else []
        for head, (panel, weights) in enumerate(zip(panels, heads, strict=False)):
            panel.imshow(self._dimmed(weights), interpolation="nearest")
            panel.set_title(f"head {head}", fontsize=8, fontweight="bold" if head == self.head else "normal")
        for axes in (plain, seen, *panels):
            axes.set_axis_off()
        return png_of(figure, 128)

    def _patches(self) -> int:
        return (self.height // self.patch_size) * (self.width // self.patch_size)

    def _maps(self) -> np.ndarray:
        """The weights of the image and layer that are shown, `(H, Q, R)`."""
        length, before = self.lengths[self.image], len(self.layers) * self.heads * sum(self.lengths[: self.image])
        first = before + self.layer * self.heads * length
        rows = slice(first, first + self.heads * length)
        codes = from_base64(self.codes, f"<u{self.bits // 8}").reshape(-1, self._patches())[rows]
        tops = from_base64(self.tops, "<f4")[rows, None]
        return (codes / (2**self.bits - 1) * tops.astype(np.float64)).reshape(self.heads, length, -1)

    def _image(self) -> np.ndarray:
        pixels = from_base64(self.pixels, np.uint8)
        return pixels.reshape(-1, self.height, self.width, 3)[self.image]

    def _dimmed(self, row: np.ndarray) -> np.ndarray:
        """The image, each patch darkened the more, the smaller its weight is beside the row's greatest."""
        veil = _VEIL_SHARE * (1 - row / (row.max() or 1.0)).reshape(-1, self.width // self.patch_size)
        share = np.kron(veil, np.ones((self.patch_size, self.patch_size)))[..., None]
        return np.rint((1 - share) * self._image() + share * np.array(_VEIL)).astype(np.uint8)

    def _heading(self) -> str:
        words, own = self.queries[self.image], self.lengths[self.image] - self._patches()
        asked = (
            f"“{words[self.query]}”" if words else f"Patch {self.query - own}" if self.query >= own else "Class token"
        )
        parts = [f"layer {self.layers[self.layer]}"] if len(self.layers) > 1 else []
        if self.heads > 1:
            parts.append(f"mean of {self.heads} heads" if self.head < 0 else f"head {self.head}")
        return ", ".join([asked, *parts])


def _read_images(images: Any) -> np.ndarray:
    """The images as uint8 `(N, H, W, 3)`."""
    if hasattr(images, "detach"):
        # NumPy has no bfloat16.
        images = images.detach().cpu().float() if images.is_floating_point() else images.cpu()
    array = np.asarray(images)
    if array.ndim != 4 or array.shape[3] != 3 or 0 in array.shape:
        hint = "; use permute(0, 2, 3, 1)" if array.ndim == 4 and array.shape[1] == 3 else ""
        raise ValueError(f"images: expected (images, height, width, 3), got shape {array.shape}{hint}")
    if array.dtype == np.uint8:
        return array
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"images: expected uint8 or floating numbers, got {array.dtype}")
    if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
        raise ValueError("images: expected floating numbers from 0 to 1, got others")
    return np.rint(array.astype(np.float64) * 255).astype(np.uint8)


def _read_weights(weights: Any, count: int, patches: int) -> list[Maps]:
    maps = [read_maps(one) for one in _listed("weights", weights, count)]
    for one in maps:
        if one.weights.shape[:2] != maps[0].weights.shape[:2] or one.weights.shape[3] != patches:
            expected = f"({', '.join(map(str, maps[0].weights.shape[:2]))}, queries, {patches})"
            hint = "; leave out the class token's own column" if one.weights.shape[3] == patches + 1 else ""
            raise ValueError(f"weights: expected {expected} for every image, got shape {one.weights.shape}{hint}")
        if one.weights.sum(3).max() > 1.01:  # half precision rounds
            raise ValueError(f"weights: expected rows that sum to at most 1, got {one.weights.sum(3).max():.3g}")
    return maps


def _read_queries(queries: Any, lengths: list[int], patches: int) -> list[list[str]]:
    if queries is not None:
        listed = _listed("queries", queries, len(lengths))
        return [read_tokens(words, "queries", length) for words, length in zip(listed, lengths, strict=True)]
    for length in lengths:
        if length not in (patches, patches + 1):
            raise ValueError(
                f"queries: expected the words of each caption, since {length} queries are neither the {patches} "
                "patches nor a class token and these, got None"
            )
    return [[] for _ in lengths]


def _read_answers(answers: Any, count: int) -> list[str]:
    listed = _listed("answers", answers, count)
    for answer in listed:
        if not isinstance(answer, str):
            raise ValueError(f"answers: expected strings, got {answer!r}")
    return listed


def _listed(name: str, values: Any, count: int) -> list[Any]:
    """The entries of `values`, one for each image."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ValueError(f"{name}: expected a sequence with an entry for each image, got {type(values).__name__}")
    listed = list(values)
    if len(listed) != count:
        raise ValueError(f"{name}: expected {count} entries, one for each image, got {len(listed)}")
    return listed
