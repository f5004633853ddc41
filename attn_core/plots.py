"""Pictures on matplotlib axes, in one look; matplotlib is imported when the first is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attn_core.maps import fit_source, read_links, read_maps, read_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# From no weight to the greatest: lightness falls evenly, so that it reads in grey and to the colour-blind.
RAMP = ("#f4f3f8", "#cfc8ea", "#9c8bd2", "#6547ad", "#321474")
MARK = "#d9680f"

# Okabe and Ito's colours, the darker ones first, each with a line of its own so that colour is never alone.
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
    "xtick.color": "#8a8d99",
    "xtick.labelcolor": "#33363f",
    "ytick.color": "#8a8d99",
    "ytick.labelcolor": "#33363f",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw the figures made inside in the book's style; what matplotlib was set to returns afterwards."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def heatmap(
    weights: Any,
    source: Iterable[str],
    target: Iterable[str],
    *,
    links: Iterable[Sequence[int]] | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw one attention map: a row for each target token (query), a column for each source token (key).

    Shapes: weights `(T, S)`, or anything `read_maps` takes that holds one layer and one head; source of S strings,
    target of T. `links` are the true alignments, pairs (source index, target index), whose cells are outlined. The
    colour runs from zero to the greatest weight drawn, as its bar says. Without `ax`, a new figure is made.

    Raises: ValueError where the weights hold several maps, or tokens or links do not fit them.
    """
    source, target = list(source), list(target)
    maps = fit_source(read_maps(weights), source).weights
    if maps.shape[:2] != (1, 1):
        raise ValueError(f"weights: expected one map, got {maps.shape[0]} layers and {maps.shape[1]} heads; pick one")
    grid = maps[0, 0]
    source, target = read_tokens(source, "source", grid.shape[1]), read_tokens(target, "target", grid.shape[0])
    pairs = read_links(links, source, target)
    if ax is None:
        import matplotlib.pyplot as plt

        width, height = (min(12.0, max(2.2, 0.36 * n)) for n in grid.shape[::-1])
        _, ax = plt.subplots(figsize=(width + 2.2, height + 1.4), layout="constrained")
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
    """Draw a map that has been checked, its colours from 0 to `top`: what `heatmap` and the widget's picture share."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    colours = LinearSegmentedColormap.from_list("attention", RAMP)
    image = ax.pcolormesh(grid, cmap=colours, vmin=0, vmax=top, edgecolors="white", linewidth=0.8)
    for s, t in links:
        ax.add_patch(Rectangle((s + 0.06, t + 0.06), 0.88, 0.88, fill=False, edgecolor=MARK, linewidth=1.8))
    size = 10.0 if max(grid.shape) <= 24 else 6.0
    # A token is text: a dollar sign in it is no mathematics.
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
    ax.set(xlabel="source (key)", ylabel="target (query)", aspect="equal", xlim=(0, len(source)), ylim=(len(target), 0))
    ax.grid(False)
    ax.spines[:].set_visible(False)
    if title:
        ax.set_title(title, loc="left", parse_math=False)
    figure = ax.figure
    bar = figure.colorbar(image, ax=ax, shrink=min(1.0, 5 / len(target) + 0.3), aspect=14, pad=0.03)
    bar.outline.set_visible(False)
    bar.set_label("weight; outlined: true alignment" if links else "weight")


def visible(token: str) -> str:
    """Give a token as one line that can be drawn: blanks alone as ␣, no control characters, 24 characters at most."""
    text = "".join(c if c.isprintable() else " " for c in token.encode("utf-8", "replace").decode("utf-8"))
    text = text if text.strip() else "␣"
    return text if len(text) <= 24 else text[:23] + "…"
