"""Search, place, theme, formulas and the widgets of the first page, with the network blocked. Needs `make book`."""

import json
import re
import zlib

import pytest

from tests.book import built_site as site
from tests.browser.reader import faults, theme, turn_dark

pytestmark = pytest.mark.browser

SETTINGS = site.settings()["sphinx"]["config"]["mathjax3_config"]


def test_mathjax_works_with_what_was_copied(visit):
    """The files beside the pages are enough to set a formula, also where no chapter is built yet."""
    seen = visit("reference/references.html")
    seen.page.evaluate("document.querySelector('article').append('\\\\(\\\\sqrt{d}\\\\)')")
    seen.page.evaluate("settings => { window.MathJax = settings; }", SETTINGS)
    seen.page.add_script_tag(url="../mathjax/startup.js")
    seen.page.wait_for_selector("mjx-container mjx-msqrt, mjx-container mjx-sqrt")
    assert seen.wrong == []


FOUND = {
    "RoPE": "chapters/06_positions.html#rotary-positions",
    "multi head attention": "chapters/04_multi_head.html",
    "why sqrt d": "chapters/01_pooling.html#why-divide-by-d",
    "how do I mask padding": "chapters/04_multi_head.html#masks-and-padding",
    "EAGLE": "chapters/12_serving.html#speculative-decoding",
}
TERMS = ["alignment", "teacher forcing", "MQA", "GQA", "MLA", "ViT", "KV cache", "FlashAttention", "PagedAttention"]
NO_PROSE = re.compile(r"\\|Show the code|Copy to clipboard|Click to show|Skip to|Back to top|Toggle")


def test_the_dialog_finds_sections_and_fetches_little(visit):
    """Enter opens the section that stands first, arrow keys choose another; other names of a thing find it too."""
    seen = visit("chapters/02_bahdanau.html")
    page, fetched = seen.page, []
    page.wait_for_load_state("networkidle")
    page.on("response", lambda answer: fetched.append(answer.body()))
    page.keyboard.press("Control+k")
    field, options = page.locator("dialog input"), page.locator("dialog [role=option]")
    for query, place in FOUND.items():
        field.fill(query)
        page.locator(f"dialog [role=option]:first-child[href$='/{place}']").wait_for()
        assert not NO_PROSE.search("".join(options.all_inner_texts()))
    for term in TERMS:
        field.fill(term)
        page.locator("dialog [role=option][href*='glossary.html#term-']").first.wait_for()
    assert 0 < sum(map(len, fetched)) < 200_000
    assert faults(page, within="#pst-search-dialog") == []
    field.fill("RoPE")
    options.first.filter(has_text="6.5").wait_for()
    for key, number in (("ArrowDown", 1), ("ArrowUp", 0)):
        field.press(key)
        assert field.get_attribute("aria-activedescendant") == options.nth(number).get_attribute("id")
    field.press("Enter")
    page.wait_for_url("**/06_positions.html#rotary-positions")
    assert seen.wrong == []


def test_chinese_is_found_by_pairs_of_characters(visit):
    page = visit("search.html").page
    sections = [["", "目录", "请注意。"], ["a", "一", "力学"], ["b", "二", "模型用RoPE。\n这是自注意力机制。"]]
    index = json.dumps({"pages": [["chapters/1.html", sections]], "names": []}).encode()
    page.route("**/sections.bin", lambda route: route.fulfill(body=zlib.compress(index)))
    for query, place in (("注意力", "#b"), ("rope", "#b"), ("力学", "#a"), ("目", "1.html")):
        page.goto(page.url.partition("?")[0] + f"?q={query}")
        page.locator(f"main [role=option]:first-child[href$='{place}']").wait_for()


def test_the_place_is_kept(visit):
    """The panel of contents and the bar follow the reader, and the first page leads back."""
    seen = visit("chapters/06_positions.html", width=1440, height=400)
    page = seen.page
    active = page.locator("#pst-page-toc-nav a.active")
    follows = """part => {
      const line = getComputedStyle(document.querySelector(".bd-header-article"), "::after").transform;
      const said = document.querySelector(".book-place").textContent;
      const [active, other] = ["a.active", "a.book-edition"].map((link) => document.querySelector(link));
      return Math.abs(new DOMMatrix(line).a - part) < 0.05 && said === active.textContent && other.hash === active.hash;
    }"""
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<a class=book-edition href=zh.html></a>')")
    for part in (0.3, 0.9, 1, 0.5):
        page.evaluate("part => scrollTo({ top: part * document.body.scrollHeight, behavior: 'instant' })", part)
        page.wait_for_function(follows, arg=part)
        box = active.bounding_box()
        assert 0 < box["y"] < 400 - box["height"]
    title, place = active.inner_text(), active.get_attribute("href")
    page.locator(".navbar-brand").first.click()
    page.get_by_role("link", name=f"Continue at {title.replace('. ', ' ', 1)}").click()
    page.wait_for_url(f"**/06_positions.html{place}")
    assert seen.wrong == []


def test_a_chosen_theme_is_kept(visit):
    page = visit("index.html").page
    turn_dark(page)
    page.reload()
    assert theme(page) == "dark"


@pytest.mark.parametrize("width", [1280, 320])
def test_the_landing_heatmap_is_live(visit, width):
    seen = visit("index.html", width=width)
    widget = seen.page.locator(".recorded-heatmap .attn-heatmap")
    widget.wait_for()
    reading = widget.locator("output")
    widget.locator("[role=gridcell]").focus()
    said = []
    for key in ("ArrowRight", "ArrowDown", "End", "Home"):
        seen.page.keyboard.press(key)
        said.append(reading.text_content())
    widget.locator("canvas").hover(position={"x": 12, "y": 12})
    said.append(reading.text_content())
    assert len(set(said)) == 5 and all("→" in text and re.search(r"\d\.\d\d", text) for text in said)
    assert seen.page.locator(".recorded-heatmap img").count() == 0  # the picture made way
    assert seen.wrong == []


@pytest.mark.parametrize("path", ["index.html", "chapters/02_bahdanau.html", "chapters/07_transformer.html"])
def test_a_translator_opens_the_book_and_two_of_its_chapters(visit, path):
    seen = visit(path)
    card = seen.page.locator(".attn-translator").first
    card.wait_for()
    card.scroll_into_view_if_needed()
    field = card.locator("input[type=text], textarea").first
    field.fill("the white dog eats the cold bread .")
    field.press("Escape")
    card.get_by_role("button", name="Translate", exact=True).click()
    card.get_by_text("blanc").first.wait_for()
    assert seen.wrong == []


def test_without_scripts_the_heatmap_is_a_picture(visit):
    page = visit("index.html", java_script_enabled=False).page
    picture = page.locator(".recorded-heatmap img.attn-picture")
    assert picture.is_visible() and "Greatest weights" in picture.get_attribute("alt")
