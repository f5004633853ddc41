"""An explorer of sinusoidal positions: the matrix, a pair of its columns on a circle, dot products of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import traitlets

from attn_book import plots
from attn_book.widgets.base import Joined, Real, StaticWidget, Whole, check_whole, png_of
from attn_core.positions import sinusoidal

# What the page's sliders reach.
_DIMS, _LENGTHS, _BASES = (2, 256), (8, 256), (2, 100_000)
_MOST = _LENGTHS[1] - 1


class PositionalEncodingExplorer(StaticWidget):
    """Sinusoidal encodings with a selected cell, its pair of columns and a second position.

    The page computes everything itself from six synced traits: `dim` (2 to 256 columns, odd sizes too), `length` (8 to
    256 positions), `base` (2 to 100,000), `position` and `column` of the selected cell, and `offset` (positions, from
    1 − length to length − 1), the distance to the second position. When `dim` or `length` falls, the other traits move
    to the last value that fits, in Python as in the page.

    Raises:
        ValueError: if an argument, or a value that a trait is set to, does not fit. The message names it.

    Source: Vaswani et al. 2017, section 3.5.
    """

    _esm = Joined("page.js", "sketch.js", "positional.js")
    _css = Joined("page.css", "positional.css")

    dim = Whole(32, *_DIMS).tag(sync=True, static=True)
    length = Whole(64, *_LENGTHS).tag(sync=True, static=True)
    base = Real(10_000.0, *_BASES).tag(sync=True, static=True)
    position = Whole(10, 0, _MOST).tag(sync=True, static=True)
    column = Whole(6, 0, _DIMS[1] - 1).tag(sync=True, static=True)
    offset = Whole(7, -_MOST, _MOST).tag(sync=True, static=True)

    def __init__(
        self,
        dim: int = 32,
        length: int = 64,
        *,
        base: float = 10_000.0,
        position: int | None = None,
        column: int | None = None,
        offset: int | None = None,
    ) -> None:
        dim, length = check_whole("dim", dim, *_DIMS), check_whole("length", length, *_LENGTHS)
        super().__init__(
            dim=dim,
            length=length,
            base=base,
            position=min(10, length - 1) if position is None else position,
            column=min(6, dim - 1) if column is None else column,
            offset=min(7, length - 1) if offset is None else offset,
        )

    def __repr__(self) -> str:
        return f"PositionalEncodingExplorer(dim={self.dim}, length={self.length}, base={self.base:g})"

    @traitlets.validate("position", "column", "offset")
    def _within(self, proposal: Any) -> int:
        name, last = proposal["trait"].name, self.length - 1
        limits = {"position": (0, last), "column": (0, self.dim - 1), "offset": (-last, last)}
        return check_whole(name, proposal["value"], *limits[name])

    @traitlets.observe("dim", "length")
    def _fit(self, _: Any) -> None:
        last = self.length - 1
        self.column = min(self.column, self.dim - 1)
        self.position = min(self.position, last)
        self.offset = max(-last, min(self.offset, last))

    def table(self) -> np.ndarray:
        """Return the encodings, `(length, dim)` float64."""
        return sinusoidal(self.length, self.dim, base=self.base, dtype=torch.float64).numpy()

    def describe(self) -> str:
        """Describe the drawing: the sizes, the selected cell, and how the offset rotates its pair of columns."""
        value, frequency = self.table()[self.position, self.column], self._frequency()
        said = (
            f"Sinusoidal positions as a heatmap: {self.length} positions by {self.dim} dimensions, base {self.base:g}; "
            f"PE[{self.position}, {self.column}] = {value:.3f}. "
        )
        if not self._paired():
            return said + f"Column {self.column} is a sine without a partner."
        return said + (
            f"Pair {self.column // 2} as two points on a circle and as two curves: it turns by {frequency:.4g} rad per "
            f"position, and for an offset of {self.offset} by {frequency * self.offset:.3f} rad from any position. "
            "The dot products of the encodings, over their offset."
        )

    def picture(self) -> bytes:
        """Draw the present state as a small PNG."""
        from matplotlib.figure import Figure

        table, frequency = self.table(), self._frequency()
        with plots.style():
            figure = Figure(figsize=(8.0, 6.4), dpi=80)
            (matrix, circle), (curves, products) = figure.subplots(2, 2, height_ratios=(3, 2))
            plots.positional_matrix(matrix, table, cell=(self.position, self.column))
            plots.positional_pair(curves, table, self.column // 2)
            plots.positional_products(products, table, self.position)
            if self._paired():
                plots.positional_circle(circle, frequency * self.position, frequency * self.offset)
            else:
                circle.set_axis_off()
            return png_of(figure, 96)

    def _frequency(self) -> float:
        """Radians per position of the selected pair."""
        return float(self.base ** (-2 * (self.column // 2) / self.dim))

    def _paired(self) -> bool:
        """Whether the selected column has a partner; the last column of an odd size has none."""
        return bool(self.column // 2 * 2 + 1 < self.dim)
