"""The map of the chapters, drawn as SVG: an arrow leads from each chapter to those whose *You need* line names it."""

from __future__ import annotations

import math
import random
import re
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from itertools import combinations, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

NEEDS = re.compile(r"\*\*You need\*\*(.*?)(?=\n\n|\n\*\*|\n:::)", re.DOTALL)
CHAPTER = re.compile(r"\]\((\d\d_\w+)\)")
Spot = tuple[int, float]  # how many steps from the beginning, and where across the map


class Chapter(NamedTuple):
    """What the map shows of a chapter, its picture as SVG, and the numbers of those that it needs."""

    title: str
    href: str
    picture: str
    needs: list[int]


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


def _spread(wanted: Sequence[float], most: float) -> list[float]:
    """Places from 0 to `most` at least 1 apart, in the order of those that are wanted and as near to them as can be."""
    groups: list[list[float]] = []
    for place in (want - k for k, want in enumerate(wanted)):
        groups.append([place])
        while len(groups) > 1 and sum(groups[-2]) / len(groups[-2]) >= sum(groups[-1]) / len(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    flat = [sum(group) / len(group) for group in groups for _ in group]
    return [max(0.0, min(place, most - len(flat) + 1)) + k for k, place in enumerate(flat)]


def _tangle(
    layers: Sequence[Sequence[Any]], near: Mapping[Any, Sequence[Any]], place: Mapping[Any, float]
) -> tuple[int, float]:
    """How many pairs of arrows cross, and how far all of them go across the map."""
    cross, far = 0, 0.0
    for layer, following in pairwise(layers):
        ends = [(place[one], place[other]) for one in layer for other in near[one] if other in following]
        cross += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(ends, 2))
        far += sum(abs(a - b) for a, b in ends)
    return cross, far


def placed(arrows: Mapping[int, Sequence[int]]) -> tuple[dict[int, Spot], dict[tuple[int, int], list[Spot]]]:
    """Where each chapter stands, and through which spots each arrow passes.

    A chapter is one step further than the last that it needs. An arrow over several steps keeps a place free in each.
    """
    step: dict[Any, int] = {}
    for chapter in sorted(arrows):
        step[chapter] = 1 + max((step[need] for need in arrows[chapter]), default=-1)
    near: dict[Any, list[Any]] = {chapter: [] for chapter in arrows}
    through: dict[tuple[int, int], list[Any]] = {}
    for chapter, wanted in arrows.items():
        for need in wanted:
            free = [(need, chapter, k) for k in range(step[need] + 1, step[chapter])]
            through[need, chapter] = [need, *free, chapter]
            step.update((one, one[2]) for one in free)
            for one, other in pairwise(through[need, chapter]):
                near.setdefault(one, []).append(other)
                near.setdefault(other, []).append(one)
    layers = [[point for point in near if step[point] == k] for k in range(1 + max(step.values()))]
    most = max(map(len, layers)) - 1.0
    found = []
    for start in range(40):  # from several orders, for one alone may end where arrows cross
        generator = random.Random(start)
        place = {point: generator.random() * most for point in near}
        for _ in range(12):
            for layer in layers:
                want = {point: sum(place[one] for one in near[point]) / max(1, len(near[point])) for point in layer}
                layer.sort(key=want.__getitem__)
                place.update(zip(layer, _spread([want[point] for point in layer], most), strict=True))
        found.append((_tangle(layers, near, place), place))
    _, place = min(found, key=itemgetter(0))
    spots = {point: (step[point], place[point]) for point in near}
    return (
        {chapter: spots[chapter] for chapter in arrows},
        {ends: [spots[point] for point in points] for ends, points in through.items()},
    )


def _lines(title: str, width: int) -> list[str]:
    """A title in lines. Chinese has no blanks, and letters twice as wide; there the lines are about equally long."""

    def size(text: str) -> int:
        return sum(1 + (letter > "\u2e7f") for letter in text)

    if size(title) == len(title):
        narrower = (textwrap.wrap(title, most, break_long_words=False) for most in range(1, width + 1))
        return min(narrower, key=len)
    lines, even = [""], math.ceil(size(title) / math.ceil(size(title) / width))
    for piece in re.findall(r"(?:[ -\u2e7f]+|.)[，、]?", title):  # a Latin word, or a character
        if lines[-1] and size(lines[-1] + piece.strip()) > even + 1:
            lines.append("")
        lines[-1] += piece
    return [line.strip() for line in lines]


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """A curve from left to right through points, level in each of them."""
    said = "M{:.0f} {:.0f}".format(*points[0])
    for (x, y), (to_x, to_y) in pairwise(points):
        said += f"C{(x + to_x) / 2:.0f} {y:.0f} {(x + to_x) / 2:.0f} {to_y:.0f} {to_x:.0f} {to_y:.0f}"
    return said


def _bent(points: Sequence[tuple[float, float]]) -> str:
    """Level lines through points, which change their height in the middle of the gap before each."""
    said = "M{:.0f} {:.0f}".format(*points[0])
    for (_, y), (to_x, to_y) in pairwise(points):
        turn, away = to_x - 17, max(-8.0, min(8.0, (to_y - y) / 2))
        said += f"H{turn - 8:.0f}Q{turn:.0f} {y:.0f} {turn:.0f} {y + away:.0f}V{to_y - away:.0f}"
        said += f"Q{turn:.0f} {to_y:.0f} {turn + 8:.0f} {to_y:.0f}H{to_x:.0f}"
    return said


def drawn(chapters: Mapping[int, Chapter], upright: bool) -> str:
    """The map as SVG, from left to right; or upright for a narrow screen, where a title stands beside its picture.

    Chapters go by their numbers. An arrow that follows from others has the class `implied`.
    """
    shown = direct({number: chapter.needs for number, chapter in chapters.items()})
    spots, through = placed(shown)
    steps = [
        sorted((number for number in chapters if spots[number][0] == k), key=spots.__getitem__)
        for k in range(1 + max(spots.values())[0])
    ]
    wide = 1 + max(place for _, place in spots.values())
    size, breadth = (34, 330.0) if upright else (40, 108 * wide)
    # Lying, the row of single chapters with which the book begins stands in the first column, titles beside pictures.
    alone = next((k for k, step in enumerate(steps) if len(step) > 1), len(steps))
    chain = 1 if upright else max(1, min(alone, int(wide)))
    letters = [{1: 40, 2: 18}.get(len(step), 12) if upright else 11 for step in steps]
    lines = {number: _lines(chapter.title, letters[spots[number][0]]) for number, chapter in chapters.items()}
    below = [not upright or len(step) > 2 for step in steps]  # whether titles stand below their pictures
    leading = 13 if upright else 14
    room = [leading * max(len(lines[n]) for n in step) if upright and below[k] else 0 for k, step in enumerate(steps)]
    ahead = [58 * k + sum(room[:k]) + size / 2 + 16 for k in range(len(steps))]
    if not upright:
        ahead = [size / 2 + 20 + 90 * max(0, k - chain + 1) + 64 * (k >= chain > 1) for k in range(len(steps))]

    def point(step: int, place: float) -> tuple[float, float]:
        """Where something stands along the map and across it."""
        places = [spots[number][1] for number in steps[step]]
        if not upright:
            return ahead[step], 108 * (step if step < chain else place) + size / 2 + 18
        if place not in places:  # an arrow on its way: at the edge
            return ahead[step], breadth - 4 - 7 * (wide - 1 - place)
        k = places.index(place)
        return ahead[step], breadth * (k + 0.5) / len(places) if below[step] else 22 + 166 * k

    arrows, parts = [], []
    for number, chapter in chapters.items():
        for need in chapter.needs:
            (first, *between, last) = through.get((need, number), [spots[need], spots[number]])
            (x, y), (to_x, to_y) = point(*first), point(*last)
            away = size / 2 + 3 + room[first[0]]
            stops = [(x + away, y), *(point(*spot) for spot in between), (to_x - size / 2 - 7, to_y)]
            curve = _curve(stops) if upright or need not in shown[number] else _bent(stops)
            if last[0] < chain:  # down the first column
                curve = f"M{x:.0f} {y + size / 2 + 3:.0f}V{to_y - size / 2 - 7:.0f}" if need in shown[number] else curve
            if upright:
                curve = re.sub(r"(-?\d+) (-?\d+)", r"\2 \1", curve)
            name = f"arrow of{need} to{number}" + ("" if need in shown[number] else " implied")
            arrows.append(f'<path class="{name}" d="{curve}" marker-end="url(#chapter-map-{upright:d})"/>')
        x, y = point(*spots[number])[:: -1 if upright else 1]
        corner = f'x="{x - size / 2:.0f}" y="{y - size / 2:.0f}" width="{size}" height="{size}"'
        anchor, left, top = "middle", x, y + size / 2 + 14
        if not below[spots[number][0]] or spots[number][0] < chain - 1:
            anchor, left, top = "start", x + size / 2 + 8, y + 4 - leading / 2 * (len(lines[number]) - 1)
        title = "".join(
            f'<tspan x="{left:.0f}" y="{top + leading * k:.0f}">{escape(line)}</tspan>'
            for k, line in enumerate(lines[number])
        )
        parts.append(
            f'<a class="c{number}" href="{escape(chapter.href)}"><rect {corner} rx="5"/>'
            f'<use {corner} href="#map-picture-{number}"/>'
            f'<text class="number" x="{x - size / 2 - 4 * upright:.0f}" y="{y - size / 2 - 4:.0f}">{number}</text> '
            f'<text text-anchor="{anchor}">{title}</text></a>'
        )
    # Both maps show the pictures from within the page: each as a file of its own would hold up the first page's text.
    pictures = "".join(
        re.sub("<svg [^>]*?(?=viewBox)", f'<symbol id="map-picture-{n}" ', one.picture).replace("</svg>", "</symbol>")
        for n, one in chapters.items()
        if not upright
    )
    width, height = (breadth, ahead[-1] + 28 + room[-1]) if upright else (ahead[-1] + size / 2 + 18, breadth)
    return (
        f'<svg class="{"upright" if upright else "lying"}" viewBox="0 0 {width:.0f} {height:.0f}" role="group" '
        f'aria-labelledby="chapter-map"><defs><marker id="chapter-map-{upright:d}" viewBox="0 0 7 7" refX="2" '
        'refY="3.5" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0 0L7 3.5L0 7Z"/></marker>{pictures}</defs>{"".join(arrows)}{"".join(parts)}</svg>'
    )


def map_html(chapters: Mapping[int, Chapter]) -> str:
    """Both forms of the map, and a style by which the arrows of the chapter under the pointer or the focus light up."""
    lit = ",".join(
        f".chapter-map svg:has(.c{n}:is(:hover,:focus-visible)) :is(.to{n},.of{n}:not(.implied))" for n in chapters
    )
    style = f"<style>{lit}{{opacity:1;stroke:var(--pst-color-secondary)}}</style>"
    return style + drawn(chapters, upright=False) + drawn(chapters, upright=True)
