"""Search, place, theme, formulas and the widgets of the first page, with the network blocked. Needs `make book`."""

import json
import re
import zlib

import pytest

from tests.book import built_site as site
from tests.browser.reader import faults, theme, turn_dark

pytestmark = pytest.mark.browser

FOUND = {
    "bahdanu": "chapters/02_bahdanau.html",
    "rotery embeding": "chapters/06_positions.html#rotary-positions",
    "slidng window": "chapters/13_sparse.html#sliding-windows",
    "RoPE": "chapters/06_positions.html#rotary-positions",
    "multi head attention": "chapters/04_multi_head.html",
    "why sqrt d": "chapters/01_pooling.html#why-divide-by-d",
    "why divide by the square root": "chapters/01_pooling.html#why-divide-by-d",
    "how do I mask padding": "chapters/04_multi_head.html#masks-and-padding",
    "EAGLE": "chapters/12_serving.html#speculative-decoding",
    "HookedTransformer": "chapters/21_microscope.html#in-practice",
    "citation": "index.html#download-and-cite",
    "Chapter 7": "chapters/07_transformer.html",
}
TERMS = ["alignment", "teacher forcing", "MQA", "GQA", "MLA", "ViT", "KV cache", "FlashAttention", "PagedAttention"]
NO_PROSE = re.compile(r"\\|Show the code|Copy to clipboard|Click to show|Skip to|Toggle")


def test_the_dialog_finds_sections_and_fetches_little(visit):
    """Enter opens the section that stands first, arrow keys choose another; other names of a thing find it too."""
    seen = visit("chapters/02_bahdanau.html")
    page, fetched = seen.page, []
    page.wait_for_load_state("networkidle")
    page.on("response", lambda answer: fetched.append(site.HTML / answer.url.split("/", 3)[3]))
    page.keyboard.press("Control+k")
    field, options = page.locator("dialog input"), page.locator("dialog [role=option]")
    for query, place in FOUND.items():
        field.fill(query)
        page.locator(f"dialog [role=option]:first-child:is([href$='/{place}'], [href*='/{place}:~:text='])").wait_for()
        assert not NO_PROSE.search("".join(options.all_inner_texts()))
        assert page.locator("#pst-search-dialog").evaluate("e => e.scrollHeight <= e.clientHeight")
    for term in TERMS:
        field.fill(term)
        page.locator("dialog [role=option][href*='glossary.html#term-']").first.wait_for()
    assert 0 < sum(path.stat().st_size for path in fetched) < 200_000
    assert faults(page, within="#pst-search-dialog") == []
    field.fill("RoPE")
    options.first.filter(has_text="6.5").wait_for()
    for key, number in (("ArrowDown", 1), ("ArrowUp", 0)):
        field.press(key)
        assert field.get_attribute("aria-activedescendant") == options.nth(number).get_attribute("id")
    field.press("Enter")
    page.wait_for_url("**/06_positions.html#rotary-positions")
    assert seen.wrong == []


def test_the_number_of_results_comes_with_them_and_leads_to_all(visit):
    page = visit("chapters/02_bahdanau.html").page
    page.keyboard.press("Control+k")
    field, said, options = (page.locator(f"dialog {part}") for part in ("input", ".found-said", "[role=option]"))
    field.fill("xqzvw")
    said.filter(has_text="Nothing found.").wait_for()
    field.fill("xqzvwq")
    assert said.inner_text() == "Nothing found."
    field.fill("rotery embeding")
    options.first.wait_for()
    count = int(re.fullmatch(r"All (\d+) results", options.last.inner_text())[1])
    assert said.inner_text() == f'Results for "rotary embedding": {count} sections found'
    for key in ("ArrowUp", "Enter"):
        field.press(key)
    page.locator("main [role=option]").nth(count - 1).wait_for()


def test_chinese_is_found_by_pairs_of_characters(visit):
    page = visit("search.html").page
    sections = [["", "目录", "请注意。", ""], ["a", "一", "力学", "张量"], ["b", "二", "RoPE。\n自注意力机制。", ""]]
    index = json.dumps({"pages": [["chapters/1.html", sections]], "names": []}, ensure_ascii=False).encode("gb18030")
    page.route("**/sections.bin", lambda route: route.fulfill(body=zlib.compress(index)))
    for query, place in (("注意力", "#b"), ("rope", "#b"), ("力学", "#a"), ("张量", "#a"), ("目", "1.html")):
        page.goto(page.url.partition("?")[0] + f"?q={query}")
        page.locator(f"main [role=option]:first-child:is([href$='{place}'], [href*='{place}:~:text='])").wait_for()


def test_the_place_and_a_chosen_theme_are_kept(visit):
    """The panel of contents and the bar follow the reader, and the first page leads back."""
    seen = visit("chapters/06_positions.html", width=1440, height=400)
    page = seen.page
    active = page.locator("#pst-page-toc-nav a.active")
    follows = """part => {
      const line = getComputedStyle(document.querySelector(".bd-header-article"), "::after").transform;
      const said = document.querySelector(".book-place").textContent;
      const [active, other] = ["a.active", "a.book-edition"].map((link) => document.querySelector(link));
      const { top, bottom } = active.getBoundingClientRect();
      const isShown = top > 0 && bottom < innerHeight && said === active.textContent && other.hash === active.hash;
      return isShown && Math.abs(new DOMMatrix(line).a - part) < 0.05;
    }"""
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<a class=book-edition href=zh.html></a>')")
    page.evaluate("MathJax.startup.promise.then(() => null)")
    for part in (0.3, 0.9, 1, 0.5):
        page.evaluate("part => scrollTo({ top: part * document.body.scrollHeight, behavior: 'instant' })", part)
        page.wait_for_function(follows, arg=part)
    title, place = active.inner_text(), active.get_attribute("href")
    page.locator(".navbar-brand").first.click()
    page.get_by_role("link", name=f"Continue at {title.replace('. ', ' ', 1)}").click()
    page.wait_for_url(f"**/06_positions.html{place}")
    turn_dark(page)
    page.reload()
    assert theme(page) == "dark" and seen.wrong == []


# Whether the line ends at the word that is marked above the map.
REACHES = """() => {
  const place = (name) => document.querySelector(name).getBoundingClientRect();
  const [end, word] = [place(".attn-trace circle"), place(".attn-column.attn-on")];
  return word.left <= end.left && end.right <= word.right;
}"""


def test_the_first_page_writes_its_sentence_once(visit, address):
    """A line runs from each word to the one attended to; nothing moves out of place, and whatever one does ends it."""
    still = visit("index.html", reduced_motion="reduce").page.locator(".attn-word:not(.attn-later)")
    whole = still.all_inner_texts()
    page = visit("reference/notation.html", apart=True).page
    page.clock.install(time=0)
    page.clock.pause_at(60_000)
    page.goto(address + "index.html")
    shown, box = page.locator(".attn-word:not(.attn-later)"), page.locator(".attn-translator").bounding_box()
    for count in range(1, 5):
        assert shown.all_inner_texts() == whole[:count]
        assert page.locator(".attn-row.attn-on").inner_text() == whole[count - 1] and page.evaluate(REACHES)
        assert page.locator(".attn-translator").bounding_box() == box
        page.clock.run_for(560)
    page.keyboard.press("Shift")
    assert shown.all_inner_texts() == whole and not page.locator(".attn-trace").count()
    page.reload()
    shown.nth(len(whole) - 1).wait_for()  # with the clock at rest, so it does not start again
    assert shown.all_inner_texts() == whole


LABELS = """svg => Math.min(...[...svg.querySelectorAll("text")].map((e) => parseFloat(getComputedStyle(e).fontSize)))
  * svg.clientWidth / svg.viewBox.baseVal.width"""


def test_the_map_has_the_arrows_of_the_chapters_and_a_way_is_followed_with_next(visit):
    seen = visit("index.html")
    page = seen.page
    for number, needed in ((20, {4, 7, 11, 19}), (1, set())):  # as their "You need" says
        page.locator(f".lying .c{number}").focus()
        arrows = page.locator(f".lying .arrow.to{number}")
        shown = arrows.evaluate_all("all => all.map((e) => [e.className.baseVal, getComputedStyle(e).opacity])")
        assert {int(re.search(r"of(\d+)", name)[1]) for name, opacity in shown if opacity == "1"} == needed
    page.set_viewport_size({"width": 375, "height": 812})
    assert not page.locator(".lying").is_visible() and page.locator("svg.upright").evaluate(LABELS) >= 9
    stops = page.locator("#way-inference li").count()
    page.locator("#way-inference li a").first.click()
    for stop in range(1, stops + 1):
        page.locator(f".way-bar:has-text('stop {stop} of {stops}')").wait_for()
        if stop == 1:  # from where its last section ends
            (onwards,) = page.locator("p.way-on a[href*='/10_flash']").evaluate_all("all => all.map((e) => e.href)")
            assert page.locator(".right-next").get_attribute("href") == onwards
        page.locator(".right-next").click()
    page.wait_for_url("**/index.html#a-map-and-three-ways")
    page.locator(".lying .c21, .upright .c21").locator("visible=true").click()
    page.get_by_role("link", name="Back to 18. The next word").click()
    page.get_by_role("button", name="Leave this way").click()
    page.locator(".right-next[href='19_pictures.html']").wait_for()
    assert not page.locator(".way-bar").count()
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


def test_without_scripts_a_widget_is_a_picture(visit):
    picture = visit("index.html", java_script_enabled=False).page.locator(".recorded-translator img.attn-picture")
    assert picture.is_visible() and "Greatest weights" in picture.get_attribute("alt")
