"""How a page reads: the length of its lines, and what a phone does to it."""

import re

import pytest

from tests.book import built_site as site
from tests.book.built_site import ROOT
from tests.browser.reader import scroll_through

pytestmark = pytest.mark.browser
CHAPTER = "chapters/01_pooling.html"
MOVED = """new PerformanceObserver((list) => { for (const { value } of list.getEntries()) moved += value; })
  .observe({ type: "layout-shift", buffered: true }); var moved = 0;"""
# How many characters of a long paragraph without a formula a full line holds.
LINES = """[...document.querySelectorAll("article section > p")]
  .filter((p) => p.textContent.length > 150 && !p.querySelector("mjx-container, code"))
  .map((p) => {
    const range = document.createRange();
    range.selectNodeContents(p);
    const widths = [...range.getClientRects()].reduce((sum, { width }) => sum + width, 0);
    return p.clientWidth * p.textContent.length / widths;
  })"""
# Formulas that are on one line and their comma on the next.
BROKEN = "[...document.querySelectorAll('.unbroken')].filter((e) => e.getClientRects().length > 1).length"
# The labels of our drawings, in pixels, as wide as a drawing is shown.
LABELS = """async (image) => {
  const drawn = new DOMParser().parseFromString(await (await fetch(image.src)).text(), "image/svg+xml").documentElement;
  const least = Math.min(...[...drawn.querySelectorAll("text[font-size]")].map((e) => e.getAttribute("font-size")));
  return least * image.clientWidth / drawn.viewBox.baseVal.width;
}"""


# Lines of code that go on further out than they began.
OUT = """[...document.querySelectorAll(".cell_input pre .line")].filter((line) => {
  const [words, range] = [document.createTreeWalker(line, NodeFilter.SHOW_TEXT), document.createRange()];
  while (words.nextNode() && !words.currentNode.data.trim());
  range.setStart(words.currentNode, Math.max(0, words.currentNode.data.search(/\\S/)));
  range.setEndAfter(line.lastChild);
  const [{ left } = {}, ...others] = [...range.getClientRects()].filter(({ width }) => width);
  return others.some((rect) => rect.left < left);
}).length"""


@pytest.mark.parametrize(("path", "width"), [("index.html", 1280), (CHAPTER, 1280), (CHAPTER, 1440)])
def test_lines_have_a_readable_length_and_stay_where_they_are(visit, path, width):
    page = visit(path, width=width).page
    page.evaluate(MOVED)
    page.evaluate("() => globalThis.MathJax?.startup?.promise")
    lines = sorted(page.evaluate(LINES))
    assert 65 <= lines[len(lines) // 2] <= 75 and page.evaluate("moved") < 0.05


def test_drawings_code_and_the_list_of_chapters_can_be_read_on_a_phone(visit):
    scroll_through(page := visit("chapters/16_long_context.html", width=375, has_touch=True, is_mobile=True).page)
    drawing = page.locator("figure img[src*=ring]")
    assert drawing.evaluate(LABELS) < 9
    drawing.tap()
    assert page.locator("dialog[open] img").evaluate(LABELS) >= 9
    page.get_by_role("button", name="Close").tap()
    assert not page.locator("dialog[open]").count()
    code = page.locator(".more").first.element_handle()  # the first one now: it will match no longer
    code.evaluate("e => e.scrollTo(e.scrollWidth, 0)")
    page.wait_for_function("e => !e.matches('.more')", arg=code)
    assert page.evaluate(OUT) == 0
    page.locator(".primary-toggle").first.tap()
    page.wait_for_function("() => document.querySelector('dialog li.current > a').getBoundingClientRect().top < 600")
    page.keyboard.press("Escape")
    page.locator(".secondary-toggle").first.tap()
    page.locator("dialog[open] a[href^='#']").nth(2).tap()
    page.wait_for_function("() => !document.querySelector('dialog[open]')")
    assert not any(site.parsed(path).select("a.image-reference") for path in site.pages())  # which leave the book


def test_who_touches_is_not_told_to_point_and_no_comma_begins_a_line(visit):
    scripts = [path.read_text(encoding="utf-8") for path in (ROOT / "attn_book" / "widgets").glob("*.js")]
    words = (ROOT / "website" / "js" / "phones.js").read_text(encoding="utf-8")
    pointed = re.compile(r'"((?:Point|[A-Z][^"]*(?:[Cc]lick|arrow keys))[^"\n]+)"')
    assert set(pointed.findall("".join(scripts))) == set(re.findall(r'"([^"]+)":\s+say', words))
    page = visit(CHAPTER, width=375, has_touch=True, is_mobile=True).page
    told = page.locator("article").inner_text()
    assert "Tap a cell" in told and "Point at" not in told
    page.evaluate("() => MathJax.startup.promise")
    for width in (340, 420, 460, 520, 600):
        page.set_viewport_size({"width": width, "height": 812})
        assert page.evaluate(BROKEN) == 0
