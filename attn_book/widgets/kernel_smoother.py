"""Kernel regression by Nadaraya and Watson: an attention-weighted average whose bandwidth a reader changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import traitlets

from attn_book import plots
from attn_book.widgets.base import (
    Joined,
    Numbers,
    Real,
    RefusedError,
    StaticWidget,
    check_numbers,
    check_real,
    png_of,
)
from attn_core import attend

_ROW = ((2, 40), 1e5)  # how many points there may be, and how large their numbers
# What the slider of the bandwidth reaches, as shares of the width of the data: from a staircase to a flat line.
_NARROW, _WIDE = 1 / 500, 5.0
_MOST = _WIDE * 2 * _ROW[1]


class KernelSmoother(StaticWidget):
    """Nadaraya–Watson regression with a Gaussian kernel: points, the fitted curve, and the weights at a query.

    The output at a query is the average of the values `y`, weighted by the softmax of −(query − x)² / (2 bandwidth²).
    The page computes it from four synced traits: `x` and `y`, equally many, 2 to 40 numbers each within ±100,000;
    `bandwidth`, from 1/500 of the range of `x` to five times that range, a tenth unless given; and `query`, within the
    range, its middle unless given. When the range changes, both move to the nearest value that fits. `x_label` and
    `y_label` name the axes. To change the number of points from Python, set `x` and `y` within
    `hold_trait_notifications()`.

    Raises:
        ValueError: if an argument, or a value that a trait is set to, does not fit. The message names it.

    Source: Nadaraya 1964; Watson 1964.
    """

    _esm = Joined("page.js", "sketch.js", "kernel_smoother.js")
    _css = Joined("page.css", "kernel_smoother.css")
    _said = ("x_label", "y_label")

    x = Numbers([0.0, 1.0], *_ROW).tag(sync=True, static=True)
    y = Numbers([0.0, 1.0], *_ROW).tag(sync=True, static=True)
    bandwidth = Real(0.1, 0.0, _MOST).tag(sync=True, static=True)
    query = Real(0.5, -_ROW[1], _ROW[1]).tag(sync=True, static=True)
    x_label = traitlets.Unicode("x").tag(sync=True, static=True)
    y_label = traitlets.Unicode("y").tag(sync=True, static=True)

    def __init__(
        self,
        x: Sequence[float],
        y: Sequence[float],
        *,
        bandwidth: float | None = None,
        query: float | None = None,
        x_label: str = "x",
        y_label: str = "y",
    ) -> None:
        keys = check_numbers("x", x, *_ROW)
        for name, label in (("x_label", x_label), ("y_label", y_label)):
            if not isinstance(label, str):
                raise ValueError(f"{name}: expected a string, got {label!r}")
        super().__init__(
            x=keys,
            y=y,
            bandwidth=(max(keys) - min(keys)) / 10 if bandwidth is None else bandwidth,
            query=(max(keys) + min(keys)) / 2 if query is None else query,
            x_label=x_label,
            y_label=y_label,
        )

    def __repr__(self) -> str:
        return f"KernelSmoother(points={len(self.x)}, bandwidth={self.bandwidth:g}, query={self.query:g})"

    @traitlets.validate("x", "y")
    def _as_many(self, proposal: Any) -> list[float]:
        name, numbers = proposal["trait"].name, proposal["value"]
        other = "y" if name == "x" else "x"
        if len(numbers) != (count := len(getattr(self, other))):
            raise RefusedError(f"{name}: expected {count} numbers, as many as {other}, got {len(numbers)}")
        if name == "x" and min(numbers) == max(numbers):
            raise RefusedError(f"x: expected at least two different numbers, got {numbers[0]:g} alone")
        return list(numbers)

    @traitlets.validate("bandwidth", "query")
    def _within(self, proposal: Any) -> float:
        name = proposal["trait"].name
        return check_real(name, proposal["value"], *self._limits()[name])

    @traitlets.observe("x")
    def _fit(self, _: Any) -> None:
        for name, (low, high) in self._limits().items():
            setattr(self, name, max(low, min(getattr(self, name), high)))

    def weights(self) -> np.ndarray:
        """Return the attention weights of the points at the query, `(points,)` float64; they sum to 1."""
        return self._pool(np.array([self.query]))[1][0]

    def output(self) -> float:
        """Return the weighted average of the values at the query."""
        return float(self._pool(np.array([self.query]))[0][0])

    def describe(self) -> str:
        """Describe the drawing: the number of points, the bandwidth, the output at the query, the largest weight."""
        return (
            f"Kernel regression of {self.y_label} on {self.x_label}: {len(self.x)} points and their weighted average "
            f"with bandwidth {self.bandwidth:.3g}. At the query {self.query:.4g} the weighted average is "
            f"{self.output():.4g}, and the largest attention weight is {self.weights().max():.2f}."
        )

    def picture(self) -> bytes:
        """Draw the present state as a small PNG."""
        from matplotlib.figure import Figure

        with plots.style():
            figure = Figure(figsize=(8.0, 5.0), dpi=80, layout="constrained")
            above, below = figure.subplots(2, 1, height_ratios=(2.6, 1), sharex=True)
            self._draw_curve(above)
            self._draw_weights(below)
            return png_of(figure, 96)

    def _limits(self) -> dict[str, tuple[float, float]]:
        low, high = min(self.x), max(self.x)
        return {"bandwidth": ((high - low) * _NARROW, (high - low) * _WIDE), "query": (low, high)}

    def _pool(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The outputs `(T,)` and the weights `(T, S)` at these queries."""
        distances = (torch.as_tensor(queries)[:, None] - torch.tensor(self.x, dtype=torch.float64)) / self.bandwidth
        out, weights = attend(-(distances**2) / 2, torch.tensor(self.y, dtype=torch.float64)[:, None])
        return out[:, 0].numpy(), weights.numpy()

    def _draw_curve(self, ax: Any) -> None:
        """The points, each as large as its weight, and the curve."""
        places = np.linspace(min(self.x), max(self.x), 500)
        ax.scatter(self.x, self.y, s=1500 * self.weights(), color="#9c8bd2", linewidth=0)
        ax.plot(self.x, self.y, "o", color="#5b6070")
        ax.plot(places, self._pool(places)[0], "-", color="#1f2330")
        ax.axvline(self.query, color=plots.MARK, linestyle="--", linewidth=1.2)
        ax.plot([self.query], [self.output()], "o", color=plots.MARK, markersize=8)
        ax.set(
            ylabel=plots.visible(self.y_label, 48),
            title=f"Bandwidth {self.bandwidth:.3g}: a weighted average at every query",
        )

    def _draw_weights(self, ax: Any) -> None:
        """A bar for the weight of each point."""
        ax.vlines(self.x, 0, self.weights(), color="#5a3aa6", linewidth=5)
        ax.axvline(self.query, color=plots.MARK, linestyle="--", linewidth=1.2)
        ax.set(ylim=(0, 1), xlabel=plots.visible(self.x_label, 48), ylabel="attention weight")
