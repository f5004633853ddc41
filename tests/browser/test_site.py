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
    seen.page.add_script_tag(url="../mathjax/startup.js")
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
