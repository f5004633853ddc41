"""Ways through the book: the map of its chapters, timed ways to follow, and what Previous and Next say of a chapter.

The map's arrows come from each chapter's *You need* line; the hours of a way from the words and the code of its sections.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from website.page_heads import study_minutes

NEEDS = re.compile(r"\*\*You need\*\*(.*?)(?=\n\n|\n\*\*|\n:::)", re.DOTALL)
CHAPTER = re.compile(r"\]\((\d\d_\w+)\)")
STOP = re.compile(r"- (\w+)(?:: *(.+))?")
GATE = re.compile(r"```\{(?:exercise|solution)-(start|end)\}")
DATA = "way_stops.js"


class Way(nodes.container):
    """A way through the book: its name in addresses, and its stops, each a chapter and sections of it."""


class Map(nodes.container):
    """The place of the map of the chapters."""


# ---- The map ----


def needs(notebook: Any) -> list[str]:
    """The chapters to which the *You need* line of a chapter leads."""
    text = "\n\n".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    line = NEEDS.search(text)
    return list(dict.fromkeys(CHAPTER.findall(line[1]))) if line else []


def direct(arrows: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Of the chapters that each chapter needs, those that no other of them needs by itself."""
    above: dict[int, set[int]] = {}
    for chapter in sorted(arrows):
        above[chapter] = set(arrows[chapter]).union(*(above[need] for need in arrows[chapter]))
    return {
        chapter: [need for need in wanted if not any(need in above[other] for other in wanted)]
        for chapter, wanted in arrows.items()
    }


def _spread(wanted: Sequence[float]) -> list[float]:
    """Places at least 1 apart, in the order of those that are wanted and as near to them as can be."""
    groups: list[list[float]] = []
    for place in (want - k for k, want in enumerate(wanted)):
        groups.append([place])
        while len(groups) > 1 and sum(groups[-2]) / len(groups[-2]) >= sum(groups[-1]) / len(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    flat = [sum(group) / len(group) for group in groups for _ in group]
    return [place + k for k, place in enumerate(flat)]


def placed(arrows: Mapping[int, Sequence[int]]) -> tuple[dict[int, tuple[int, float]], dict[tuple[int, int], list[Any]]]:
    """Where each chapter stands, (step, place), and through which points each arrow passes.

    A chapter is one step further than the last that it needs. An arrow over several steps keeps a place free in each.
    """
    step: dict[Any, int] = {}
    for chapter in sorted(arrows):
        step[chapter] = 1 + max((step[need] for need in arrows[chapter]), default=-1)
    through = {
        (need, chapter): [need, *((need, chapter, k) for k in range(step[need] + 1, step[chapter])), chapter]
        for chapter, wanted in arrows.items()
        for need in wanted
    }
    near: dict[Any, list[Any]] = {chapter: [] for chapter in arrows}
    for points in through.values():
        for k, (one, other) in enumerate(zip(points, points[1:], strict=False), step[points[0]]):
            step[one], step[other] = k, k + 1
            near.setdefault(one, []).append(other)
            near.setdefault(other, []).append(one)
    layers = [[point for point in near if step[point] == k] for k in range(1 + max(step.values()))]
    place = {point: float(k) for layer in layers for k, point in enumerate(layer)}
    for _ in range(40):
        for layer in layers:
            want = {point: sum(place[one] for one in near[point]) / max(1, len(near[point])) for point in layer}
            layer.sort(key=want.__getitem__)
            place.update(zip(layer, _spread([want[point] for point in layer]), strict=True))
    least = min(place.values())
    at = {point: (step[point], place[point] - least) for point in near}
    return {chapter: at[chapter] for chapter in arrows}, {
        ends: [at[point] for point in points] for ends, points in through.items()
    }


def _lines(title: str, width: int) -> list[str]:
    wide = any(ord(letter) > 0x2E80 for letter in title)  # Chinese has no blanks, and wide letters
    return textwrap.wrap(title, width // 2 if wide else width)


def _curve(points: Sequence[tuple[float, float]], upright: bool, room: float) -> str:
    """A curve that leaves and reaches each point along the map's direction, from behind the first to before the last."""
    ahead = [(y, x) if upright else (x, y) for x, y in points]
    ahead[0], ahead[-1] = (ahead[0][0] + room, ahead[0][1]), (ahead[-1][0] - room - 5, ahead[-1][1])
    said = []
    for k, (x, y) in enumerate(ahead):
        before = ahead[k - 1] if k else (x, y)
        middle = (before[0] + x) / 2
        said.append([(middle, before[1]), (middle, y), (x, y)] if k else [(x, y)])
    text = [" ".join(f"{b:.0f} {a:.0f}" if upright else f"{a:.0f} {b:.0f}" for a, b in part) for part in said]
    return "M" + "C".join(text)


def drawn(chapters: Mapping[int, Mapping[str, Any]], upright: bool) -> str:
    """The map as SVG; of each chapter its `title`, `href`, `image` and which chapters it `needs`, by their numbers.

    It runs from left to right, or upright for a narrow screen, where a title stands beside its picture if there is room.
    """
    shown = direct({number: chapter["needs"] for number, chapter in chapters.items()})
    at, through = placed(shown)
    steps = [[number for number in chapters if at[number][0] == k] for k in range(1 + max(k for k, _ in at.values()))]
    size, pitch = (34, 66) if upright else (40, 72)
    wide = 1 + max(place for _, place in at.values())
    ahead, spot = [], 0.0
    for step in steps:
        crowded = len(step) > 2
        ahead.append(spot + size / 2 + 6)
        spot += (98 if crowded else 56) if upright else pitch
    across = 330 / wide if upright else 100.0

    def point(step: float, place: float) -> tuple[float, float]:
        x, y = ahead[int(step)], (place + 0.5) * across - (0 if upright else 18)
        if not upright:
            return x + pitch / 2 - size / 2 - 6, y
        few = [number for number in chapters if at[number][0] == step]
        if len(few) < 3 and place in (at[number][1] for number in few):  # the title needs room at the right
            y = {1: [30.0], 2: [30.0, 196.0]}[len(few)][sorted(at[n][1] for n in few).index(place)]
        return y, x

    parts, arrows = [], []
    for number, chapter in chapters.items():
        for need in chapter["needs"]:
            direct_arrow = need in shown[number]
            points = through[need, number] if direct_arrow else [at[need], at[number]]
            curve = _curve([point(*one) for one in points], upright, size / 2 + 2)
            name = f"arrow of{need} to{number}" + ("" if direct_arrow else " implied")
            arrows.append(f'<path class="{name}" d="{curve}" marker-end="url(#chapter-map-{upright:d})"/>')
        x, y = point(*at[number])
        beside = upright and len(steps[at[number][0]]) < 3
        lines = _lines(f"{number} {chapter['title']}", (40 if len(steps[at[number][0]]) == 1 else 17) if beside else 12)
        left, top = (x + size / 2 + 7, y + 4 - 6.5 * (len(lines) - 1)) if beside else (x, y + size / 2 + 13)
        spans = "".join(f'<tspan x="{left:.0f}" y="{top + 13 * k:.0f}">{escape(line)}</tspan>' for k, line in enumerate(lines))
        parts.append(
            f'<a class="c{number}" href="{escape(chapter["href"])}"><rect x="{x - size / 2 - 2:.0f}" '
            f'y="{y - size / 2 - 2:.0f}" width="{size + 4}" height="{size + 4}" rx="6"/><image x="{x - size / 2:.0f}" '
            f'y="{y - size / 2:.0f}" width="{size}" height="{size}" href="{escape(chapter["image"])}"/>'
            f'<text text-anchor="{"start" if beside else "middle"}">{spans}</text></a>'
        )
    width, height = (330, spot) if upright else (pitch * len(steps), wide * across + 2)
    head = '<path d="M0 0L7 3.5L0 7Z"/>'
    return (
        f'<svg class="{"upright" if upright else "lying"}" viewBox="0 0 {width:.0f} {height:.0f}" role="group" '
        f'aria-labelledby="chapter-map"><defs><marker id="chapter-map-{upright:d}" viewBox="0 0 7 7" refX="2" refY="3.5" '
        f'markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">{head}</marker></defs>'
        f"{''.join(arrows)}{''.join(parts)}</svg>"
    )


def map_html(chapters: Mapping[int, Mapping[str, Any]]) -> str:
    """Both forms of the map, and what lights up where the pointer or the keys are."""
    lit = "".join(
        f".chapter-map svg:has(.c{n}:is(:hover,:focus-visible)) :is(.to{n},.of{n}:not(.implied))," for n in chapters
    )
    style = f"{lit.rstrip(',')}{{opacity:1;stroke:var(--pst-color-secondary)}}"
    return f"<style>{style}</style>{drawn(chapters, False)}{drawn(chapters, True)}"


# ---- Ways ----


def _without_exercises(cells: Sequence[Any]) -> Iterator[Any]:
    inside = False
    for cell in cells:
        if cell["cell_type"] == "markdown":
            gates = GATE.findall(cell["source"])
            yield {**cell, "source": re.sub(r"(?s)```\{(exercise|solution)-start\}.*?(```\{\1-end\}\n```|\Z)", "", cell["source"])}
            inside = gates[-1] == "start" if gates else inside
        elif not inside:
            yield cell


def section_minutes(notebook: Any) -> list[float]:
    """Minutes for the opening of a chapter and for each of its sections: prose and visible code, without exercises."""
    sections: list[list[Any]] = [[]]
    for cell in _without_exercises(notebook["cells"]):
        if cell["cell_type"] != "markdown":
            sections[-1].append(cell)
            continue
        first, *others = re.split(r"(?m)^## ", cell["source"])
        sections[-1].append({**cell, "source": first})
        sections += [[{**cell, "source": other}] for other in others]
    return [study_minutes({"cells": cells}) for cells in sections]


def half_hours(minutes: float) -> str:
    """Minutes as hours, to the nearest half."""
    whole, half = divmod(round(minutes / 30), 2)
    return f"{whole or ''}{'½' if half else ''}" or "½"


class Book:
    """What an environment knows of the chapters: numbers, titles, sections, and the first page's line of each."""

    def __init__(self, app: Sphinx) -> None:
        self.app, self.env = app, app.env
        self.index = app.env.get_doctree("index")
        self.lines = dict(self._contents())
        self.chapters = [name for name in self.lines if "" in self.env.toc_secnumbers.get(name, {})]

    def _contents(self) -> Iterator[tuple[str, tuple[str, str]]]:
        for item in self.index.findall(nodes.list_item):
            for link in item.findall(lambda node: node.get("reftype") == "doc" if isinstance(node, nodes.Element) else False):
                picture = next(iter(item.findall(nodes.image)), None)
                image = self.env.images[picture["uri"]][1] if picture else ""
                after = link.parent[link.parent.index(link) + 1 :]
                line = "".join(node.astext() for node in after).lstrip(":： ").replace("\n", " ")
                yield link["reftarget"], (f"_images/{image}" if image else "", line)

    def notebook(self, name: str) -> Any:
        """The notebook of a chapter."""
        return nbformat.read(self.env.doc2path(name), as_version=4)

    def number(self, name: str, place: str = "") -> str:
        """The number of a chapter or of its section, as 11 or 11.2."""
        return ".".join(map(str, self.env.toc_secnumbers[name][place]))

    def title(self, name: str) -> str:
        """A chapter's title, in the book's language."""
        return self.env.titles[name].astext()

    def sections(self, name: str) -> dict[str, str]:
        """The sections of a chapter, by the names of their places."""
        (whole,) = self.env.tocs[name].children
        inner = [part for part in whole.children if isinstance(part, nodes.bullet_list)]
        links = [next(iter(item.findall(nodes.reference))) for part in inner for item in part.children]
        return {link["anchorname"].removeprefix("#"): link.astext() for link in links}

    def map_of(self) -> dict[int, dict[str, Any]]:
        """The chapters, for the map."""
        number = {Path(name).name: int(self.number(name)) for name in self.chapters}
        # Numbered in its order, the book needs nothing that comes later; a line may say what does.
        return {
            number[Path(name).name]: {
                "title": self.title(name),
                "href": self.app.builder.get_relative_uri("index", name),
                "image": self.lines[name][0],
                "needs": sorted(
                    number[need]
                    for need in needs(self.notebook(name))
                    if need in number and number[need] < number[Path(name).name]
                ),
            }
            for name in self.chapters
        }

    def way(self, node: Way) -> list[tuple[str, list[str]]]:
        """The stops of a way: each a page and the places of its sections, which are written as far as they are unique.

        Raises:
            ValueError: no section of the chapter begins so, or several do.
        """
        stops = []
        for name, wanted in node["stops"]:
            found = [[place for place in self.sections(name) if place.startswith(start)] for start in wanted]
            for start, places in zip(wanted, found, strict=True):
                if len(places) != 1:
                    raise ValueError(f"way: expected one section {start}… in {name}, got {', '.join(places) or 'none'}")
            stops.append((name, [place for (place,) in found]))
        return stops

    def minutes(self, way: Way) -> float:
        """Minutes that a way takes.

        Raises:
            ValueError: the notebook's headings are not the page's sections.
        """
        total = 0.0
        for name, wanted in self.way(way):
            opening, *minutes = section_minutes(self.notebook(name))
            sections = self.sections(name)
            if len(sections) != len(minutes):
                raise ValueError(f"{name}: expected {len(sections)} sections, got {len(minutes)} headings")
            by_place = dict(zip(sections, minutes, strict=True))
            total += opening + sum(by_place[place] for place in wanted or sections)
        return total

    def fill(self, way: Way) -> None:
        """Give a way its hours and the list of its stops."""
        for text in list(way.findall(nodes.Text)):
            if "{hours}" in text:
                text.parent.replace(text, nodes.Text(text.replace("{hours}", half_hours(self.minutes(way)))))
        listed = nodes.bullet_list()
        for name, wanted in self.way(way):
            address = self.app.builder.get_relative_uri("index", name)
            asked = "" if address.startswith("#") else f"?way={way['key']}"
            link = nodes.reference("", f"{self.number(name)}. {self.title(name)}", refuri=address + asked, internal=True)
            line = nodes.paragraph("", "", link)
            for k, place in enumerate(wanted):
                title = self.sections(name)[place]
                inner = nodes.reference("", self.number(name, f"#{place}"), internal=True, reftitle=title)
                inner["refuri"] = f"{address}{asked}#{place}" if asked else f"{address}"
                line += [nodes.Text(": " if not k else ", "), inner]
            listed += nodes.list_item("", line)
        way += listed

    def stops(self) -> dict[str, Any]:
        """All ways for the script that leads along them."""
        ways = {}
        for way in self.index.findall(Way):
            stops = []
            for name, wanted in self.way(way):
                image, line = self.lines[name]
                titles = self.sections(name)
                stops.append(
                    {
                        "page": self.app.builder.get_target_uri(name),
                        "title": f"{self.number(name)}. {self.title(name)}",
                        "image": image,
                        "line": line,
                        "sections": [[place, f"{self.number(name, f'#{place}')}. {titles[place]}"] for place in wanted],
                    }
                )
            ways[way["key"]] = {"title": next(iter(way.findall(nodes.rubric))).astext(), "stops": stops}
        return ways


class MapDirective(SphinxDirective):
    """The map of the chapters; its caption is the body."""

    has_content = True

    def run(self) -> Sequence[nodes.Node]:
        """Keep its place, and read the caption."""
        caption = nodes.container(classes=["recorded-caption"], ids=["chapter-map"])
        self.state.nested_parse(self.content, self.content_offset, caption)
        return [Map("", caption, classes=["chapter-map"])]


class WayDirective(SphinxDirective):
    """A way: its title, in the body what it is and `- chapter: section, section` for each stop. `{hours}` is computed."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {"key": directives.unchanged_required}

    def run(self) -> Sequence[nodes.Node]:
        """Read its text and its stops.

        Raises:
            DirectiveError: a stop has another form, or is no page.
        """
        prose = [line for line in self.content if not line.startswith("- ")]
        stops = []
        for line in self.content:
            if line.startswith("- "):
                found = STOP.fullmatch(line.strip())
                name = f"chapters/{found[1]}" if found else ""
                if not found or name not in self.env.found_docs:
                    raise self.error(f"way: expected '- chapter: section, section', got {line!r}")
                stops.append((name, [place.strip() for place in (found[2] or "").split(",") if place.strip()]))
        title = nodes.rubric("", self.arguments[0], classes=["way-title"])
        self.set_source_info(title)
        way = Way("", title, classes=["way"], key=self.options["key"], stops=stops, ids=[f"way-{self.options['key']}"])
        self.state.nested_parse(self.content.__class__(prose, source=self.get_source_info()[0]), self.content_offset, way)
        return [way]


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the map and the stops of the ways into the first page, when all chapters are known."""
    places = [*doctree.findall(Map), *doctree.findall(Way)]
    if not places or app.builder.format != "html":
        return
    book = Book(app)
    for place in places:
        if isinstance(place, Way):
            book.fill(place)
        else:
            place.insert(0, nodes.raw("", map_html(book.map_of()), format="html"))


def tell_neighbours(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give Previous and Next the picture and the line that the first page has of their chapter."""
    if not hasattr(app, "book_lines"):
        app.book_lines = Book(app).lines  # type: ignore[attr-defined]
    _, *around = app.builder.relations.get(pagename, (None, None, None)) if hasattr(app.builder, "relations") else ()
    for side, name in zip(("prev", "next"), around, strict=False):
        if context.get(side) and name in app.book_lines:
            image, line = app.book_lines[name]
            context[side] = {**context[side], "image": image and context["pathto"](image, 1), "line": line}


def changed(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Write the first page always, since it counts the words of others, and all pages when its lines have changed."""
    lines = Book(app).lines
    before, env.book_lines = getattr(env, "book_lines", lines), lines  # type: ignore[attr-defined]
    return ["index"] if before == lines else list(lines)


def write_stops(app: Sphinx, exception: Exception | None) -> None:
    """Write what the script that leads along the ways has to know."""
    if exception is None and app.builder.name == "html":
        text = json.dumps(Book(app).stops(), ensure_ascii=False)
        (Path(app.outdir) / "_static" / DATA).write_text(f"globalThis.attentionBookWays = {text};\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    for node in (Map, Way):
        app.add_node(
            node,
            html=(lambda self, node: self.visit_container(node), lambda self, node: self.depart_container(node)),
        )
    app.add_directive("chapter-map", MapDirective)
    app.add_directive("way", WayDirective)
    app.connect("doctree-resolved", resolve)
    app.connect("html-page-context", tell_neighbours)
    app.connect("env-updated", changed)
    app.connect("build-finished", write_stops)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
