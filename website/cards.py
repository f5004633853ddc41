"""A Sphinx extension that draws what a shared link to a page shows: its title, beside the small picture of its chapter.

Social networks show a PNG but no SVG. Our small pictures have few kinds of shapes, which matplotlib can draw.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
SIZE = 1200, 630  # pixels, which networks show whole
SIDE = 330  # of the small picture


def points_of(path: str) -> list[tuple[float, float]]:
    """The corners of a path, a half circle as many short lines.

    Raises:
        ValueError: it has a part that is neither a line nor the upper half of a circle.
    """
    points: list[tuple[float, float]] = []
    for kind, text in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", text)]
        x, y = points[-1] if points else (0.0, 0.0)
        if kind in "ML":
            points += zip(numbers[::2], numbers[1::2], strict=True)
        elif kind == "l":
            for dx, dy in zip(numbers[::2], numbers[1::2], strict=True):
                points.append((points[-1][0] + dx, points[-1][1] + dy))
        elif kind in "Hhv":
            points.append({"H": (numbers[0], y), "h": (x + numbers[0], y), "v": (x, y + numbers[0])}[kind])
        elif kind == "A" and numbers[2:] == [0, 0, 1, x + 2 * numbers[0], y]:
            turns = [math.pi * (1 - step / 30) for step in range(31)]
            points += [(x + numbers[0] * (1 + math.cos(turn)), y - numbers[0] * math.sin(turn)) for turn in turns]
        elif kind == "z":
            points.append(points[0])
        else:
            raise ValueError(f"expected lines and upper halves of circles, got {kind}{text}")
    return points


def shapes(element: ElementTree.Element, style: dict[str, Any], scale: float) -> Iterator[Any]:
    """What matplotlib draws for an element of an SVG, and for those in it.

    Raises:
        ValueError: it has one of an unknown kind.
    """
    from matplotlib import patches

    own: dict[str, Any] = {
        **style,
        **element.attrib,
        "opacity": float(style.get("opacity", 1)) * float(element.get("opacity", 1)),
    }
    kind = element.tag.rpartition("}")[2]
    get = lambda name: float(own.get(name, 0))  # noqa: E731
    look: dict[str, Any] = {
        "facecolor": own.get("fill", "black"),
        "edgecolor": own.get("stroke", "none"),
        "linewidth": scale * get("stroke-width"),
        "linestyle": "--" if "stroke-dasharray" in own else "-",
        "alpha": own["opacity"],
    }
    if kind in ("svg", "g"):
        for child in element:
            yield from shapes(child, own, scale)
    elif kind == "rect":
        x, y, wide, high, r = map(get, ("x", "y", "width", "height", "rx"))
        corner, inner = (x + r, y + r), (wide - 2 * r, high - 2 * r)
        yield patches.FancyBboxPatch(corner, *inner, boxstyle=f"round,pad={r},rounding_size={r}", **look)
    elif kind == "circle":
        yield patches.Circle((get("cx"), get("cy")), get("r"), **look)
    elif kind in ("path", "polyline"):
        path = str(own["d"] if kind == "path" else f"M{own['points']}")
        yield patches.Polygon(points_of(path), closed=path.endswith("z"), **look)
    elif kind != "title":
        raise ValueError(f"expected svg, g, rect, circle, path or polyline, got {kind}")


def card(title: str, site: str, picture: Path) -> bytes:
    """The card of a page, a PNG.

    Raises:
        ValueError: the picture has something that this does not draw.
    """
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(SIZE[0] / 100, SIZE[1] / 100), dpi=100, facecolor="white")
    root = ElementTree.parse(picture).getroot()
    side = float(root.attrib["viewBox"].split()[2])
    axes = figure.add_axes((80 / SIZE[0], 0.5 - SIDE / SIZE[1] / 2, SIDE / SIZE[0], SIDE / SIZE[1]))
    axes.set(xlim=(0, side), ylim=(side, 0))
    axes.axis("off")
    for shape in shapes(root, {}, SIDE / side * 0.72):
        axes.add_patch(shape)
    left = (80 + SIDE + 70) / SIZE[0]
    figure.text(left, 0.53, textwrap.fill(title, 19), size=38, weight="bold", color="#171b22", va="center")
    figure.text(left, 0.14, site, size=20, color="#5a3aa6", va="center")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a script that the font lacks
        figure.savefig(full := io.BytesIO(), format="png")
    small = Image.open(full).convert("RGB").quantize(48, dither=Image.Dither.NONE)
    small.save(done := io.BytesIO(), format="png", optimize=True)
    return done.getvalue()


def add_card(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Draw a page's card, and name it where sphinxext.opengraph looks; its address must be the full one."""
    if doctree is None or app.builder.name != "html" or not app.config.ogp_site_url:
        return
    title = app.env.titles[pagename].astext()
    own = ROOT / "chapters" / "figures" / "small" / f"{pagename.partition('_')[2]}.svg"
    name = f"_images/card-{pagename.replace('/', '-')}.png"
    target = Path(app.outdir) / name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(card(title, app.config.ogp_site_name, own if own.exists() else ROOT / "website" / "logo.svg"))
    wide, high = map(str, SIZE)
    named = {"og:image": name, "og:image:alt": title, "og:image:width": wide, "og:image:height": high}
    context["meta"] = {**(context.get("meta") or {}), **named}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("html-page-context", add_card, priority=400)  # before sphinxext.opengraph
    return {"parallel_read_safe": True, "parallel_write_safe": True}
