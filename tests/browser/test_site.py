"""Every page as a reader meets it in Chromium, with the network blocked. Needs `make book`; see `make test-browser`."""

import re

import pytest

from tests.book import built_site as site

pytestmark = pytest.mark.browser

PAGES = site.pages()
each_page = pytest.mark.parametrize("path", PAGES)


def scroll_through(page):
    """Down and up again, so that what loads when it is seen has loaded."""
    page.evaluate("async () => { for (let y = 0; y < document.body.scrollHeight; y += 700) "
                  "{ scrollTo(0, y); await new Promise(done => setTimeout(done, 20)); } scrollTo(0, 0); }")  # fmt: skip
    page.wait_for_load_state("networkidle")


@each_page
def test_nothing_fails(visit, path):
    seen = visit(path)
    scroll_through(seen.page)
    assert seen.wrong == []
    broken = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src.slice(0, 100))"
    assert seen.page.evaluate(broken) == []


@pytest.mark.parametrize("path", site.chapters())
def test_mathematics_is_set(visit, path):
    page = visit(path).page
    page.wait_for_selector("mjx-container mjx-math")
    page.evaluate("() => MathJax.startup.promise")
    sources = page.evaluate("document.querySelectorAll('article .math').length")
    assert sources and page.evaluate("document.querySelectorAll('article .math mjx-container').length") >= sources
    assert page.evaluate("document.querySelectorAll('mjx-merror, [data-mjx-error]').length") == 0


def test_mathjax_works_with_what_was_copied(visit):
    """The files beside the pages are enough to set a formula, also where no chapter is built yet."""
    seen = visit("references.html")
    seen.page.evaluate("document.querySelector('article').append('\\\\(\\\\sqrt{d}\\\\)')")
    seen.page.add_script_tag(url="mathjax/tex-chtml-full.js")
    seen.page.wait_for_selector("mjx-container mjx-msqrt, mjx-container mjx-sqrt")
    assert seen.wrong == []


@pytest.mark.parametrize(("word", "page"), [("teacher forcing", "glossary.html"), ("alignment", "index.html")])
def test_search_finds_a_page(visit, word, page):
    seen = visit(f"search.html?q={word.replace(' ', '+')}")
    seen.page.wait_for_selector(f"#search-results li a[href*='{page}']")
    assert seen.wrong == []


def test_the_search_button_opens_a_field(visit):
    page = visit("index.html").page
    page.locator(".search-button:visible, .search-button-field:visible").first.click()
    field = page.locator("input[type=search]:visible").first
    field.fill("glossary")
    field.press("Enter")
    page.wait_for_url(re.compile(r"search\.html\?q=glossary"))


def background(page):
    return [
        int(part) for part in re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]
    ]


@pytest.mark.parametrize("path", ["index.html", *site.chapters()])
def test_the_dark_toggle_works(visit, path):
    page = visit(path).page
    assert min(background(page)) > 200
    for _ in range(3):  # light, dark and automatic take turns
        page.locator("button.theme-switch-button:visible").first.click()
        if page.evaluate("document.documentElement.dataset.theme") == "dark":
            break
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.wait_for_timeout(400)  # the theme fades
    assert max(background(page)) < 60
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_dark_is_taken_from_the_system(visit):
    page = visit("index.html", scheme="dark").page
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@each_page
def test_no_page_is_wider_than_a_narrow_screen(visit, path):
    page = visit(path, width=320).page
    scroll_through(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    # Nor is text cut off by a box that neither grows nor scrolls.
    inside = """[...document.querySelectorAll('article :is(p, h1, h2, h3, figure, li)')]
        .filter(e => e.getBoundingClientRect().width && e.getBoundingClientRect().right > 321
            && !e.closest('pre, table, .attn-static, .math, .cell_output, .visually-hidden'))
        .map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"""
    assert page.evaluate(inside) == []


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


@pytest.mark.parametrize("path", ["index.html", "chapters/02_bahdanau.html", "chapters/05_transformer.html"])
def test_a_translator_opens_the_book_and_two_of_its_chapters(visit, path):
    seen = visit(path)
    card = seen.page.locator(".attn-translator").first
    card.wait_for()
    card.scroll_into_view_if_needed()
    field = card.locator("input[type=text], textarea").first
    field.fill("the white dog eats the cold bread .")
    field.press("Escape")
    card.get_by_role("button", name="Translate", exact=True).click()
    card.get_by_text("blanc").first.wait_for(timeout=20_000)
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


def test_without_scripts_the_heatmap_is_a_picture(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + "index.html")
    picture = page.locator(".recorded-heatmap img.attn-picture")
    assert picture.is_visible() and "Greatest weights" in picture.get_attribute("alt")
    context.close()
