"""A heatmap of attention weights, by layer and head, to read with a pointer, a finger or the keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import traitlets

from attn_book import plots
from attn_book.maps import read_labelled, read_links
from attn_book.widgets.base import Joined, StaticWidget, check_whole, from_base64, png_of, to_base64

_FINE, _MOST = 16_384, 2**20


class AttentionHeatmap(StaticWidget):
    """Attention maps with a row for each query (target token) and a column for each key (source token).

    Shapes: weights as `attn_book.maps.read_maps` takes them, `(T, S)` to `(L, H, T, S)` or what other libraries
    return; source of S strings, target of T. `links` are the true alignments, pairs (source index, target index),
    whose cells are outlined. `layer` and `head`, counted from 0, are shown first. If there are several heads, small
    maps show all heads of the layer. Where the card is much wider than the map, arcs beside it show the same weights.

    The traits `layer`, `head` and `row` (the selected query, −1 for none) are synced, to observe and to link. Weights
    are stored as whole steps of the greatest one, `scale`: 65,535 steps for up to 16,384 weights, otherwise 255, so a
    weight read from the widget is off by at most scale / 510. A page can hold some 2²⁰ weights, one or two MB, and no
    more are taken. The arguments are neither changed nor kept.

    Raises:
        ValueError: if an argument, or a value that a trait is set to, does not fit. The message names it.
    """

    _esm = Joined("page.js", "heatmap_arcs.js", "heatmap.js")
    _css = Joined("page.css", "heatmap.css")
    _said = ("title", "layers")

    title = traitlets.Unicode().tag(sync=True, static=True)
    source = traitlets.List(traitlets.Unicode()).tag(sync=True, static=True)
    target = traitlets.List(traitlets.Unicode()).tag(sync=True, static=True)
    links: traitlets.List[list[int]] = traitlets.List().tag(sync=True, static=True)
    layers = traitlets.List(traitlets.Unicode()).tag(sync=True, static=True)
    heads = traitlets.Int().tag(sync=True, static=True)
    codes = traitlets.Unicode().tag(sync=True, static=True)
    bits = traitlets.Int().tag(sync=True, static=True)
    scale = traitlets.Float().tag(sync=True, static=True)
    layer = traitlets.TraitType[Any, Any](0).tag(sync=True, static=True)  # whole numbers, as _within has it
    head = traitlets.TraitType[Any, Any](0).tag(sync=True, static=True)
    row = traitlets.TraitType[Any, Any](-1).tag(sync=True, static=True)

    def __init__(
        self,
        weights: Any,
        source: Iterable[str],
        target: Iterable[str],
        *,
        links: Iterable[Sequence[int]] | None = None,
        title: str = "Attention",
        layer: int = 0,
        head: int = 0,
    ) -> None:
        maps, *tokens = read_labelled(weights, source, target)
        num_layers, num_heads = maps.weights.shape[:2]
        if maps.weights.size > _MOST:
            raise ValueError(f"weights: expected at most {_MOST:,} numbers, got {maps.weights.size:,}")
        if not isinstance(title, str):
            raise ValueError(f"title: expected a string, got {title!r}")
        bits = 16 if maps.weights.size <= _FINE else 8
        scale = float(maps.weights.max()) or 1.0
        codes = np.rint(maps.weights.astype(np.float64) / scale * (2**bits - 1)).astype(f"<u{bits // 8}")
        super().__init__(
            title=title,
            source=tokens[0],
            target=tokens[1],
            links=read_links(links, *tokens),
            layers=list(maps.layers),
            heads=num_heads,
            codes=to_base64(codes),
            bits=bits,
            # float32 has seven digits; further ones would differ between machines.
            scale=float(f"{scale:.7g}"),
            layer=check_whole("layer", layer, 0, num_layers - 1),
            head=check_whole("head", head, 0, num_heads - 1),
        )

    def __repr__(self) -> str:
        return (
            f"AttentionHeatmap(layers={len(self.layers)}, heads={self.heads}, "
            f"target={len(self.target)}, source={len(self.source)})"
        )

    @traitlets.validate("layer", "head", "row")
    def _within(self, proposal: Any) -> int:
        name = proposal["trait"].name
        end = {"layer": len(self.layers), "head": self.heads, "row": len(self.target)}[name]
        return check_whole(name, proposal["value"], -1 if name == "row" else 0, end - 1)

    def grid(self) -> np.ndarray:
        """Return the map that is shown, `(T, S)` float64, with the widget's precision."""
        return self._grids()[self.head]

    def describe(self) -> str:
        """Describe the drawing, with the greatest weight of each of the first twelve target tokens in this head."""
        looks = [f"{t} → {self.source[int(s)]}" for t, s in zip(self.target, self.grid().argmax(1), strict=True)]
        more = ", …" if len(looks) > 12 else ""
        heads = f", small maps of all {self.heads} heads" if self.heads > 1 else ""
        drawn = f"{self._heading()}: heatmap of attention weights{heads}"
        return f"{drawn}. Greatest weights: {', '.join(looks[:12])}{more}."

    def picture(self) -> bytes:
        """Draw the map that is shown, below small ones of all heads if there are several, as a small PNG."""
        from matplotlib.figure import Figure

        width, height = plots.figure_size(self.source, self.target, cell=0.32, most=8.0)
        few = min(self.heads, max(3, int(width)))
        rows = -(-self.heads // few) if self.heads > 1 else 0
        figure = Figure(figsize=(width, height + rows), dpi=80, layout="constrained")
        main: Any = figure
        if rows:
            parts: Any = figure.subfigures(2, 1, height_ratios=(rows, height))
            above, main = parts
            panels = above.subplots(rows, few, squeeze=False).flat
            for head, panel in enumerate(panels):
                panel.set_axis_off()
                if head < self.heads:
                    plots.draw_small(panel, self._grids()[head], top=self.scale, title=f"head {head}")
                    panel.title.set_fontweight("bold" if head == self.head else "normal")
        tokens, heading = (self.source, self.target), self._heading()
        plots.draw(main.subplots(), self.grid(), *tokens, self.links, top=self.scale, title=heading)
        return png_of(figure, 128, thin_lines=False)

    def _grids(self) -> np.ndarray:
        """The maps of the layer that is shown, `(H, T, S)`."""
        codes = from_base64(self.codes, f"<u{self.bits // 8}")
        shape = (len(self.layers), self.heads, len(self.target), len(self.source))
        return codes.reshape(shape)[self.layer] / (2**self.bits - 1) * self.scale

    def _kind(self) -> str:
        """As in the script: a layer has a number, or a module's path with one; others are maps."""
        numbered = all(re.search(r"layer|^[\w.]*\b\d+\b[\w.]*$", name, re.I) for name in self.layers)
        return "layer" if numbered else "map"

    def _heading(self) -> str:
        parts = [f"{self._kind()} {self.layers[self.layer]}"] if len(self.layers) > 1 else []
        parts += [f"head {self.head}"] if self.heads > 1 else []
        return ", ".join([self.title or "Attention", *parts])
