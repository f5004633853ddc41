"""Every page, loaded twice: wide and light, used and then turned dark; and narrow, dark as the system is.

On each load all is checked that a page can have wrong: what fails, formulas, pictures, width, and what axe-core finds.
"""

import gzip
import re

import pytest

from tests.book import built_site as site
from tests.browser.reader import (
    BROKEN,
    FORMULAS,
    HANDLERS,
    THIN,
    drive,
    faults,
    scroll_through,
    theme,
    turn_dark,
    unfold,
)

pytestmark = pytest.mark.browser

each_page = pytest.mark.parametrize("path", site.pages())
# Text that is cut off by a box that neither grows nor scrolls.
CUT = """[...document.querySelectorAll("article :is(p, h1, h2, h3, figure, li)")]
    .filter((e) => e.getBoundingClientRect().width && e.getBoundingClientRect().right > 321
        && !e.closest("pre, table, .attn-static, .math, .cell_output, .visually-hidden"))
    .map((e) => `cut off: ${e.tagName} ${e.textContent.slice(0, 40)}`)"""
# Where paragraphs end that are in no box of their own, and where code, figures and cards: all of a kind at one edge.
# Tables are as wide as their columns need.
EDGES = """() => ["p:not(.predicted)", ":is(.highlight, figure, .attn-card)"].flatMap((kind) => {
  const edges = {};
  for (const e of document.querySelectorAll(`article ${kind}`)) {
    const { width, right } = e.getBoundingClientRect();
    const boxes = ".admonition:not(.hide), .attn-card, .sd-card, .way, dd, figcaption, li, table, summary, .caption";
    if (!width || e.parentElement.closest(`${boxes}, .recorded-caption`)) continue;
    (edges[Math.round(right)] ??= []).push(`${e.className || e.tagName} ${e.textContent.slice(0, 40)}`);
  }
  const found = Object.values(edges).sort((a, b) => a.length - b.length);
  return found.slice(0, -1).flat().map((name) => `ends at an edge of its own: ${name}`);
})"""
# The only rules that depend on a page's colours, and on its width.
COLOURS = ["color-contrast", "link-in-text-block"]
OF_WIDTH = ["scrollable-region-focusable", "target-size"]


def ground(page):
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return [int(part) for part in re.findall(r"\d+", colour)[:3]]


def test_every_page_of_the_table_of_contents_is_checked():
    listed = re.findall(r"\b(?:root|file): (\S+)", (site.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    assert len(listed) > 4
    assert {f"{name}.html" for name in [*listed, "search", "genindex"]} <= set(site.pages())


@pytest.mark.parametrize("path", ["index.html", *site.chapters()])
def test_a_page_is_light(visit, path):
    """All files of its first load, compressed. After it, a chapter may load the model of its widget."""
    page = visit(path, apart=True).page  # where nothing is known that would wait otherwise
    page.evaluate("() => window.MathJax?.startup?.promise.then(() => document.fonts.ready).then(() => null)")
    names = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => new URL(name).pathname.slice(1))")
    counted = [name for name in {path, *names} if path == "index.html" or "/models/" not in name]
    weight = sum(len(gzip.compress((site.HTML / name).read_bytes())) for name in counted)
    assert weight < (600_000 if path == "index.html" else 700_000)


@each_page
def test_a_page_in_a_wide_window(visit, path):
    seen = visit(path)
    page, widgets = seen.page, len(site.parsed(path).select(".attn-static"))
    scroll_through(page)
    found = page.evaluate(BROKEN)
    if site.parsed(path).select("article .math"):
        page.wait_for_selector("article mjx-container mjx-math", state="attached")
        page.evaluate("() => MathJax.startup.promise")
        found += page.evaluate(FORMULAS)
    used, cards = drive(page)
    if cards != widgets or used < 3 * widgets:
        found.append(f"{used} controls were used in {cards} of {widgets} widgets")
    if not page.url.endswith(path) or len(page.context.pages) > 1:
        found.append("a control led away")
    found += [f"a handler: {element}" for element in page.evaluate(HANDLERS)]
    unfold(page)
    found += page.evaluate(EDGES)
    page.evaluate(THIN)
    if min(ground(page)) < 200:
        found.append(f"not light: {ground(page)}")
    found += faults(page)
    turn_dark(page)
    if max(ground(page)) > 60:
        found.append(f"not dark: {ground(page)}")
    found += faults(page, runOnly=COLOURS) + seen.wrong
    assert not found, "\n".join(found)


@each_page
def test_a_page_on_a_narrow_screen(visit, path):
    seen = visit(path, width=320, theme="dark")
    page = seen.page
    scroll_through(page)
    found = [] if theme(page) == "dark" else [f"not dark: {theme(page)}"]
    if (wide := page.evaluate("document.documentElement.scrollWidth")) > 320:
        found.append(f"{wide} pixels wide")
    found += page.evaluate(CUT)
    unfold(page)
    page.evaluate(THIN)
    found += faults(page, runOnly=OF_WIDTH) + seen.wrong
    assert not found, "\n".join(found)
