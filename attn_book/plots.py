"""Plots in one style on matplotlib axes; matplotlib is imported when the first one is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attn_book.maps import read_labelled, read_links

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# From zero to the greatest weight: lightness falls evenly, for grey prints and colour-blind readers.
RAMP = ("#f4f3f8", "#cfc8ea", "#9c8bd2", "#6547ad", "#321474")
MARK = "#d9680f"
# From −1 through 0 to 1: orange and violet differ for colour-blind readers too, and their lightness falls equally.
DIVERGING = ("#7a3300", "#c2611a", "#edbd92", "#f4f3f8", "#bdb3e4", "#765fbd", "#3b1a86")

# The darker of Okabe and Ito's colours, each with its own line style, so that colour is never the only difference.
STYLE: Any = {
    "axes.prop_cycle": (
        "cycler('color', ['#4b2e9e', '#d9680f', '#00846b', '#0072b2', '#b0578d', '#5b6070'])"
        " + cycler('linestyle', ['-', '--', '-.', ':', (0, (5, 1)), (0, (1, 1))])"
    ),
    "axes.edgecolor": "#8a8d99",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelsize": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "figure.figsize": (6.4, 3.6),
    "font.size": 11,
    "grid.color": "#e6e6ec",
    "grid.linewidth": 0.8,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "lines.markersize": 5,
    "svg.hashsalt": "attention",  # the same figure, the same file
    "xtick.color": "#8a8d99",
    "xtick.labelcolor": "#33363f",
    "ytick.color": "#8a8d99",
    "ytick.labelcolor": "#33363f",
}


def set_up() -> None:
    """Give a notebook's figures the book's style, and draw them as SVG, which is sharp on every screen."""
    import matplotlib
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    matplotlib.rcParams.update(STYLE)
    set_matplotlib_formats("svg", metadata={"Date": None})


@contextmanager
def style() -> Iterator[None]:
    """A context in which figures have the book's style; matplotlib's settings are restored afterwards."""
    import matplotlib

    # A notebook's backend becomes interactive with the first figure. If that were reset on leaving, no later figure
    # would be shown.
    interactive = matplotlib.is_interactive()
    try:
        with matplotlib.rc_context(STYLE):
            try:
                yield
            finally:
                interactive = matplotlib.is_interactive()
    finally:
        matplotlib.interactive(interactive)


def heatmap(
    weights: Any,
    source: Iterable[str],
    target: Iterable[str],
    *,
    links: Iterable[Sequence[int]] | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw one attention map: a row for each query (target token), a column for each key (source token).

    Shapes: ``weights (T, S)``, or anything that ``read_maps`` accepts with one layer and one head; ``source`` has S
    strings and ``target`` T. ``links`` are the true alignments, pairs (source index, target index), whose cells are
    outlined. The colours go from zero to the greatest weight. Without ``ax``, a new figure is made.

    Raises:
        ValueError: if there are several maps, the tokens or links do not fit them, or ``title`` is not a string.
    """
    if title is not None and not isinstance(title, str):
        raise ValueError(f"title: expected a string, got {title!r}")
    maps, source, target = read_labelled(weights, source, target)
    num_layers, num_heads = maps.weights.shape[:2]
    if num_layers * num_heads > 1:
        raise ValueError(f"weights: expected one map, got {num_layers} layers and {num_heads} heads; pick one")
    grid = maps.weights[0, 0]
    pairs = read_links(links, source, target)
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=figure_size(source, target, cell=0.36, most=12.0), layout="constrained")
    draw(ax, grid, source, target, pairs, top=float(grid.max()) or 1.0, title=title)
    return ax


def draw(
    ax: Axes,
    grid: Any,
    source: Sequence[str],
    target: Sequence[str],
    links: Sequence[Sequence[int]],
    *,
    top: float,
    title: str | None = None,
) -> None:
    """Draw a checked map with colours from 0 to ``top``, for ``heatmap`` and for the widget's picture."""
    from matplotlib.patches import Rectangle

    image = ax.pcolormesh(grid, cmap=ramp(), vmin=0, vmax=top, edgecolors="white", linewidth=0.8)
    for s, t in links:
        ax.add_patch(Rectangle((s + 0.05, t + 0.05), 0.9, 0.9, fill=False, edgecolor=MARK, linewidth=1.8))
    size = 10.0 if max(grid.shape) <= 24 else 6.0
    # A token is text, and a dollar sign in it does not start mathematics.
    across = (
        {"rotation": 45, "ha": "left", "va": "bottom", "rotation_mode": "anchor"}
        if len(source) <= 24
        else {"rotation": 90}
    )
    ax.set_xticks(
        [i + 0.5 for i in range(len(source))], [visible(t) for t in source], fontsize=size, parse_math=False, **across
    )
    ax.set_yticks([i + 0.5 for i in range(len(target))], [visible(t) for t in target], fontsize=size, parse_math=False)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0, labelcolor="#1f2330")
    ax.set(xlabel="key", ylabel="query", aspect="equal", xlim=(0, len(source)), ylim=(len(target), 0))
    ax.grid(False)
    ax.spines[:].set_visible(False)
    if title:
        ax.set_title(visible(title, 60), loc="left", parse_math=False)
    figure = ax.figure
    bar = figure.colorbar(image, ax=ax, shrink=min(1.0, 5 / len(target) + 0.3), aspect=14, pad=0.03)
    bar.outline.set_visible(False)
    bar.set_label("weight; outlined: true alignment" if links else "weight")


def draw_small(ax: Axes, grid: Any, *, top: float, title: str) -> None:
    """Draw a checked map without its tokens, with colours from 0 to ``top``, as one of several."""
    ax.imshow(grid, cmap=ramp(), vmin=0, vmax=top, interpolation="nearest")
    ax.set_title(title, loc="center", fontsize=9)
    ax.set_axis_off()


def ramp() -> Any:
    """The colours from zero to the greatest weight, as a colormap."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("attention", RAMP)


def figure_size(source: Sequence[str], target: Sequence[str], *, cell: float, most: float) -> tuple[float, float]:
    """Width and height, in inches, of a figure with its tokens and cells of ``cell`` inches, at most ``most`` each."""
    across, down = (max(len(visible(token)) for token in tokens) for tokens in (target, source))
    width, height = (min(most, max(1.6, cell * len(tokens))) for tokens in (source, target))
    return width + 1.5 + 0.09 * across, height + 0.9 + 0.09 * down


def visible(token: str, limit: int = 24) -> str:
    """A token as one line of at most ``limit`` characters, without control characters; a blank token becomes ␣."""
    text = "".join(c if c.isprintable() else " " for c in token)
    text = text if text.strip() else "␣"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def positional_matrix(ax: Axes, table: Any, *, cell: Sequence[int] | None = None) -> None:
    """Draw encodings ``(length, dim)``: a row for each position, a column for each dimension, colours from −1 to 1.

    ``cell``, a pair (position, dimension), is outlined.

    Raises:
        ValueError: if ``table`` is not a matrix, or has no such cell.
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    grid = _read_table(table)
    if cell is not None and not all(0 <= at < size for at, size in zip(cell, grid.shape, strict=True)):
        raise ValueError(f"cell: expected a position and a dimension of a table {grid.shape}, got {cell}")
    colours = LinearSegmentedColormap.from_list("diverging", DIVERGING)
    image = ax.imshow(grid, cmap=colours, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    if cell is not None:
        ax.add_patch(Rectangle((cell[1] - 0.5, cell[0] - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=1.5))
    ax.set(xlabel="dimension", ylabel="position")
    ax.grid(False)
    bar = ax.figure.colorbar(image, ax=ax, pad=0.03, ticks=(-1, 0, 1), label="value")
    bar.outline.set_visible(False)


def positional_pair(ax: Axes, table: Any, pair: int) -> None:
    """Draw one pair of columns of encodings ``(length, dim)`` over position: its sine and, if it has one, its cosine.

    Raises:
        ValueError: if ``table`` is not a matrix, or has no such pair.
    """
    grid = _read_table(table)
    if not 0 <= 2 * pair < grid.shape[1]:
        raise ValueError(f"pair: expected one from 0 to {(grid.shape[1] - 1) // 2}, got {pair}")
    for name, wave in zip(("sine", "cosine"), grid[:, 2 * pair : 2 * pair + 2].T, strict=False):
        ax.plot(wave, label=name)
    ax.set(xlabel="position", ylabel=f"pair {pair}", ylim=(-1.1, 1.1), yticks=(-1, 0, 1))
    ax.legend(loc="lower right", ncols=2, bbox_to_anchor=(1, 1))


def positional_circle(ax: Axes, angle: float, rotation: float) -> None:
    """Draw a pair of columns as points on the unit circle: one at ``angle``, one ``rotation`` further, in radians.

    Angles start at the top and go clockwise, since the sine comes first: it is the horizontal axis.
    """
    import numpy as np

    whole, arc = np.linspace(0, 2 * np.pi, 181), angle + np.linspace(0, rotation, 181)
    ax.plot(np.sin(whole), np.cos(whole), "-", color="#8a8d99", linewidth=1)
    ax.plot(0.4 * np.sin(arc), 0.4 * np.cos(arc), "-", color="C2")
    for name, at, face in (("i + δ", angle + rotation, "white"), ("i", angle, "black")):
        ax.plot([0, np.sin(at)], [0, np.cos(at)], "k-o", markevery=[1], markerfacecolor=face, markersize=7, linewidth=1)
        ax.text(1.2 * np.sin(at), 1.2 * np.cos(at), name, ha="center", va="center")
    ax.set(xlabel="sine", ylabel="cosine", aspect="equal", xlim=(-1.4, 1.4), ylim=(-1.4, 1.4))
    ax.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1))


def positional_products(ax: Axes, table: Any, position: int) -> None:
    """Draw the dot product of one row of encodings ``(length, dim)`` with every row, over their offset in positions.

    Raises:
        ValueError: if ``table`` is not a matrix, or has no such position.
    """
    grid = _read_table(table)
    if not 0 <= position < len(grid):
        raise ValueError(f"position: expected one from 0 to {len(grid) - 1}, got {position}")
    ax.plot(range(-position, len(grid) - position), grid @ grid[position])
    ax.set(xlabel="offset δ (positions)", ylabel=f"p({position}) · p({position} + δ)")


def _read_table(table: Any) -> Any:
    import numpy as np

    if hasattr(table, "detach"):  # a tensor that is learned, or of a dtype that NumPy does not have
        table = table.detach().double().cpu()
    grid = np.asarray(table, dtype=np.float64)
    if grid.ndim != 2 or not grid.size:
        raise ValueError(f"table: expected encodings (length, dim), got shape {grid.shape}")
    return grid
