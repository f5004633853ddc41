"""Ways through the book: the first page's map, timed ways to follow, and what Previous and Next say of a chapter.

The hours of a way come from the words and the code of its sections.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from website.chapter_map import Chapter, map_html, needs
from website.page_heads import study_minutes

STOP = re.compile(r"- (\w+)(?:: *(.+))?")
EXERCISE = re.compile(r"```\{(exercise|solution)-start\}.*?(?:```\{\1-end\}\n```|\Z)", re.DOTALL)
GATE = re.compile(r"```\{(?:exercise|solution)-(start|end)\}")
DATA = "way_stops.js"


class Way(nodes.container):
    """A way through the book: its name in addresses, and its stops, each a chapter and sections of it."""


class Map(nodes.container):
    """The place of the map of the chapters."""


def _without_exercises(cells: Sequence[Any]) -> Iterator[Any]:
    inside = False
    for cell in cells:
        if cell["cell_type"] == "markdown":
            gates = GATE.findall(cell["source"])
            yield {**cell, "source": EXERCISE.sub("", cell["source"])}
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


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Whole numbers as runs of neighbours, each by its first and its last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


class Book:
    """What an environment knows of the chapters: numbers, titles, sections, and the first page's line of each."""

    def __init__(self, app: Sphinx) -> None:
        self.app, self.env = app, app.env
        self.index = app.env.get_doctree("index")
        self.lines = dict(self._contents())
        self.chapters = [name for name in self.lines if "" in self.env.toc_secnumbers.get(name, {})]

    def _contents(self) -> Iterator[tuple[str, tuple[str, str]]]:
        for item in self.index.findall(nodes.list_item):
            link = next((link for link in item.findall(addnodes.pending_xref) if link["reftype"] == "doc"), None)
            if link is not None:
                picture = next(iter(item.findall(nodes.image)), None)
                image = f"_images/{self.env.images[picture['uri']][1]}" if picture is not None else ""
                after = link.parent[link.parent.index(link) + 1 :]
                yield (
                    link["reftarget"],
                    (image, " ".join("".join(node.astext() for node in after).lstrip(":： ").split())),
                )

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

    def map_of(self) -> dict[int, Chapter]:
        """The chapters, for the map."""
        number = {Path(name).name: int(self.number(name)) for name in self.chapters}
        files = {f"_images/{file}": Path(self.app.srcdir, source) for source, (_, file) in self.env.images.items()}
        # Numbered in its order, the book needs nothing that comes later; a line may say what does.
        return {
            number[Path(name).name]: Chapter(
                self.title(name),
                self.app.builder.get_relative_uri("index", name),
                files[self.lines[name][0]].read_text(encoding="utf-8"),
                [number[need] for need in needs(self.notebook(name)) if number[need] < number[Path(name).name]],
            )
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
        joints = "：、" if self.app.config.language.startswith("zh") else (": ", ", ")
        for name, wanted in self.way(way):
            address = self.app.builder.get_relative_uri("index", name)
            asked = "" if address.startswith("#") else f"?way={way['key']}"
            title = f"{self.number(name)}. {self.title(name)}"
            line = nodes.paragraph("", "", nodes.reference("", title, refuri=address + asked, internal=True))
            places = list(self.sections(name))
            for k, (first, last) in enumerate(_runs([places.index(place) for place in wanted])):
                numbers = [self.number(name, f"#{places[at]}") for at in (first, last)]
                inner = nodes.reference("", "–".join(dict.fromkeys(numbers)), internal=True)
                inner["reftitle"] = self.sections(name)[places[first]]
                inner["refuri"] = f"{address}{asked}#{places[first]}" if asked else address
                line += [nodes.Text(joints[min(k, 1)]), inner]
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
    """A way: its title, and in the body what it is, with `{hours}`, and `- chapter: section, section` for each stop."""

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
        self.state.nested_parse(StringList(prose, source=title.source), self.content_offset, way)
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
    _, *around = getattr(app.builder, "relations", {}).get(pagename, (None, None, None))
    lines: dict[str, tuple[str, str]] = getattr(app.env, "book_lines", {})
    for side, name in zip(("prev", "next"), around, strict=True):
        if context.get(side) and name in lines:
            image, line = lines[name]
            context[side] = {**context[side], "image": image and context["pathto"](image, 1), "line": line}


def changed(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Write the first page always, since it counts the words of others, and all pages when its lines have changed."""
    lines = Book(app).lines
    before = getattr(env, "book_lines", None)
    env.book_lines = lines  # type: ignore[attr-defined]
    return ["index"] if before == lines else sorted(env.found_docs)


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
