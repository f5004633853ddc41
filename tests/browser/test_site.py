"""Search, theme, formulas and the widgets of the first page, with the network blocked. Needs `make book`."""

import re

import pytest

from tests.book import built_site as site
from tests.browser.reader import theme, turn_dark

pytestmark = pytest.mark.browser

SETTINGS = site.settings()["sphinx"]["config"]["mathjax3_config"]


def test_mathjax_works_with_what_was_copied(visit):
    """The files beside the pages are enough to set a formula, also where no chapter is built yet."""
    seen = visit("reference/references.html")
    seen.page.evaluate("document.querySelector('article').append('\\\\(\\\\sqrt{d}\\\\)')")
    seen.page.evaluate("settings => { window.MathJax = settings; }", SETTINGS)
    seen.page.add_script_tag(url="mathjax/startup.js")
    seen.page.wait_for_selector("mjx-container mjx-msqrt, mjx-container mjx-sqrt")
    assert seen.wrong == []


ABBREVIATIONS = ["MQA", "GQA", "MLA", "RoPE", "ViT", "KV cache", "FlashAttention", "PagedAttention"]


@pytest.mark.parametrize(
    ("word", "page"),
    [("alignment", "index.html"), *((word, "reference/glossary.html") for word in ["teacher forcing", *ABBREVIATIONS])],
)
def test_search_finds_a_page(visit, word, page):
    seen = visit(f"search.html?q={word.replace(' ', '+')}")
    seen.page.wait_for_selector(f"#search-results li a[href*='{page}']")
    assert seen.wrong == []


@pytest.mark.parametrize("word", ["gradient", "variance"])
def test_search_quotes_no_tex(visit, word):
    results = visit(f"search.html?q={word}").page.locator("#search-results")
    results.locator("p.context").nth(8).wait_for()
    assert "…" in results.inner_text() and "\\" not in results.inner_text()


def test_the_search_button_opens_a_field(visit):
    page = visit("index.html").page
    page.locator(".search-button:visible, .search-button-field:visible").first.click()
    field = page.locator("input[type=search]:visible").first
    field.fill("glossary")
    field.press("Enter")
    page.wait_for_url(re.compile(r"search\.html\?q=glossary"))


def test_a_chosen_theme_is_kept(visit):
    page = visit("index.html").page
    turn_dark(page)
    page.reload()
    assert theme(page) == "dark"


@pytest.mark.parametrize("width", [1280, 320])
def test_the_landing_heatmap_is_live(visit, width):
    seen = visit("index.html", width=width)
    page = seen.page
    widget = page.locator(".recorded-heatmap .attn-heatmap")
    widget.wait_for()
    canvas = widget.locator("canvas")
    box = canvas.bounding_box()
    assert box["width"] > 100 and box["height"] > 100
    colours = """canvas => new Set(new Uint32Array(canvas.getContext('2d')
        .getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""
    assert canvas.evaluate(colours) > 5
    reading = widget.locator("output")
    widget.locator("[role=gridcell]").focus()
    said = []
    for key in ("ArrowRight", "ArrowDown", "End", "Home"):
        page.keyboard.press(key)
        said.append(reading.text_content())
    assert len(set(said)) == 4 and all("→" in text and re.search(r"\d\.\d\d", text) for text in said)
    assert page.locator(".recorded-heatmap img").count() == 0  # the picture made way
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


def test_the_landing_heatmap_answers_to_the_pointer(visit):
    page = visit("index.html").page
    widget = page.locator(".recorded-heatmap .attn-heatmap")
    widget.wait_for()
    widget.scroll_into_view_if_needed()
    box = widget.locator("canvas").bounding_box()
    before = widget.locator("output").text_content()
    page.mouse.move(box["x"] + 12, box["y"] + 12)
    assert widget.locator("output").text_content() != before
    assert "→" in widget.locator("output").text_content()


def test_without_scripts_the_heatmap_is_a_picture(visit):
    page = visit("index.html", java_script_enabled=False).page
    picture = page.locator(".recorded-heatmap img.attn-picture")
    assert picture.is_visible() and "Greatest weights" in picture.get_attribute("alt")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_without_scripts_the_palette_holds(visit, theme):
    page = visit("chapters/10_flash.html", theme=theme, java_script_enabled=False).page
    link, text = (page.locator(f"article {tag}").first for tag in ("p a", "p"))
    colour = "e => getComputedStyle(e).color"
    assert link.evaluate(colour) == "rgb(90, 58, 166)" and text.evaluate(colour) == "rgb(34, 38, 46)"
    assert page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
