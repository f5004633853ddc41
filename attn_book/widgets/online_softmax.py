"""Online softmax on a reader's own numbers, tile by tile, with its running sums before and after each tile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import traitlets

from attn_book import plots
from attn_book.widgets.base import (
    Joined,
    Numbers,
    RefusedError,
    StaticWidget,
    Whole,
    check_numbers,
    check_whole,
    png_of,
)

_MOST = 24
_ROW = ((1, _MOST), 1000.0)  # how many scores and values there may be, and how large
# In tiles of two: the maximum rises, rises again, stays, and rises once more.
_SCORES = (2.0, 1.0, 3.0, 1.0, 0.5, -1.0, 4.0, 2.0)
_VALUES = (1.0, 5.0, 2.0, 4.0, 8.0, 6.0, 3.0, 7.0)


class SoftmaxStep(NamedTuple):
    """The state of online softmax after a tile, and the output so far."""

    maximum: float  # of the scores so far
    factor: float  # e^(old maximum − new maximum), which rescales the old sums; 0 for the first tile
    total: float  # sum of e^(score − maximum)
    weighted: float  # sum of e^(score − maximum) · value
    output: float  # weighted / total: the softmax-weighted mean of the values so far


class OnlineSoftmaxStepper(StaticWidget):
    """Softmax over a row of scores read tile by tile, each once, with a running maximum, sum and weighted sum.

    The page computes everything itself from four synced traits, all of which a reader can change: `scores` and
    `values`, equally many, 1 to 24 numbers each within ±1000 (each value is a single number, so the output is one too);
    `tile`, the scores read in one step; and `step`, the tiles read so far, two unless given, because the second tile is
    the first that may correct the sums. When there are fewer scores or larger tiles than before, `tile` and `step` fall
    to the greatest value that fits. To change the number of scores from Python, set `scores` and `values` within
    `hold_trait_notifications()`.

    Raises:
        ValueError: if an argument, or a value that a trait is set to, does not fit. The message names it.

    Source: Milakov and Gimelshein 2018, algorithm 3 (maximum and sum); Dao et al. 2022, algorithm 1 (the output).
    """

    _esm = Joined("page.js", "softmax_steps.js", "online_softmax.js")
    _css = Joined("page.css", "online_softmax.css")

    scores = Numbers(_SCORES, *_ROW).tag(sync=True, static=True)
    values = Numbers(_VALUES, *_ROW).tag(sync=True, static=True)
    tile = Whole(2, 1, _MOST).tag(sync=True, static=True)
    step = Whole(0, 0, _MOST).tag(sync=True, static=True)

    def __init__(
        self,
        scores: Sequence[float] | None = None,
        values: Sequence[float] | None = None,
        *,
        tile: int | None = None,
        step: int | None = None,
    ) -> None:
        if (scores is None) != (values is None):
            missing, given = ("scores", "values") if scores is None else ("values", "scores")
            raise ValueError(f"{missing}: expected as many numbers as {given}, got None")
        row = check_numbers("scores", _SCORES if scores is None else scores, *_ROW)
        size = min(2, len(row)) if tile is None else check_whole("tile", tile, 1, len(row))
        super().__init__(
            scores=row,
            values=_VALUES if values is None else values,
            tile=size,
            step=min(2, -(-len(row) // size)) if step is None else step,
        )

    def __repr__(self) -> str:
        return f"OnlineSoftmaxStepper(scores={len(self.scores)}, tile={self.tile}, step={self.step})"

    @traitlets.validate("scores", "values")
    def _as_many(self, proposal: Any) -> list[float]:
        name, numbers = proposal["trait"].name, proposal["value"]
        others = self.values if name == "scores" else self.scores
        if len(numbers) != len(others):
            other = "values" if name == "scores" else "scores"
            raise RefusedError(f"{name}: expected {len(others)} numbers, as many as {other}, got {len(numbers)}")
        return list(numbers)

    @traitlets.validate("tile", "step")
    def _within(self, proposal: Any) -> int:
        name = proposal["trait"].name
        limits = {"tile": (1, len(self.scores)), "step": (0, self._tiles())}
        return check_whole(name, proposal["value"], *limits[name])

    @traitlets.observe("scores", "tile")
    def _fit(self, _: Any) -> None:
        self.tile = min(self.tile, len(self.scores))
        self.step = min(self.step, self._tiles())

    def steps(self) -> list[SoftmaxStep]:
        """Compute all steps, one for each tile, in float64; the first `step` of them are shown."""
        steps = []
        maximum, total, weighted = -math.inf, 0.0, 0.0
        for first in range(0, len(self.scores), self.tile):
            scores, values = (row[first : first + self.tile] for row in (self.scores, self.values))
            highest = max(maximum, *scores)
            factor = math.exp(maximum - highest)
            weights = [math.exp(score - highest) for score in scores]
            total = total * factor + sum(weights)
            weighted = weighted * factor + sum(w * value for w, value in zip(weights, values, strict=True))
            maximum = highest
            steps.append(SoftmaxStep(maximum, factor, total, weighted, weighted / total))
        return steps

    def describe(self) -> str:
        """Describe the present step, the running sums, and the output so far."""
        tiles, scores = self._tiles(), ", ".join(f"{score:g}" for score in self.scores)
        said = f"Online softmax over {len(self.scores)} scores ({scores}) in tiles of {self.tile}"
        if self.step == 0:
            return f"{said}, before the first of {tiles} steps: the maximum is −∞, both sums are 0."
        now = self.steps()[self.step - 1]
        kept = f"maximum {now.maximum:g}, sum {now.total:.4g}, weighted sum {now.weighted:.4g}, output {now.output:.4g}"
        end = ", which softmax in one go gives too" if self.step == tiles else " so far"
        return f"{said}, after step {self.step} of {tiles}: {kept}{end}."

    def picture(self) -> bytes:
        """Draw the present state as a small PNG."""
        from matplotlib.figure import Figure

        with plots.style():
            figure = Figure(figsize=(8.0, 3.4 + 0.24 * max(1, self.step)), dpi=80, layout="constrained")
            bars, table = figure.subplots(2, 1, height_ratios=(2.2, 0.4 + 0.24 * max(1, self.step)))
            self._draw_bars(bars)
            self._draw_table(table)
            return png_of(figure, 64)

    def _tiles(self) -> int:
        return -(-len(self.scores) // self.tile)

    def _draw_bars(self, ax: Any) -> None:
        """A bar for each score read, as high as its weight; lines between the tiles."""
        count, read = len(self.scores), min(len(self.scores), self.step * self.tile)
        highest = self.steps()[self.step - 1].maximum if self.step else 0.0
        weights = [math.exp(score - highest) for score in self.scores[:read]]
        fresh = (self.step - 1) * self.tile
        ax.bar(range(read), weights, width=0.7, color=["#5a3aa6" if i >= fresh else "#9c8bd2" for i in range(read)])
        for edge in range(self.tile, count, self.tile):
            ax.axvline(edge - 0.5, color="#a5a8b8", linewidth=1)
        labels = [f"{x:g}\n{v:g}".replace("-", "−") for x, v in zip(self.scores, self.values, strict=True)]
        ax.set_xticks(range(count), labels, fontsize=10 if count <= 12 else 7)
        ax.tick_params(length=0)
        ax.grid(visible=False, axis="x")
        ax.set(
            xlim=(-0.6, count - 0.4), ylim=(0, 1.05), xlabel="scores, and below them values", ylabel="exp(score − m)"
        )
        ax.set_title(f"Online softmax: step {self.step} of {self._tiles()}")

    def _draw_table(self, ax: Any) -> None:
        """The running sums after each step so far."""
        ax.set_axis_off()
        rows = [[f"{i}", *(f"{number:.4g}" for number in now)] for i, now in enumerate(self.steps()[: self.step], 1)]
        names = ["step", "maximum m", "factor", "sum", "weighted sum", "output so far"]
        table = ax.table(rows or [["0", "−∞", "", "0", "0", ""]], colLabels=names, loc="center", edges="horizontal")
        table.auto_set_font_size(False)
        table.set_fontsize(10)
