"""What all widgets share, each in a page of its own: keys, contrast, axe-core, width, theme, paper, copies, kernels."""

import itertools

import pytest

from attn_book import widgets
from attn_book.widgets.base import Joined, StaticWidget
from tests.browser import drawn
from tests.browser.conftest import DRAWN, state_of
from tests.browser.reader import faults
from tests.browser.test_keys import KEYS, STOPS
from tests.browser.walks import WALKS, sample

pytestmark = pytest.mark.browser

each_kind = pytest.mark.parametrize("kind", WALKS)
each_theme = pytest.mark.parametrize("theme", ["light", "dark"])
# Marks that tell something without words, and what gives them their colour.
MARKS = {
    "AttentionPatternExplorer": {"path.attn-line": "stroke", ".attn-sector": "fill"},
    "OnlineSoftmaxStepper": {".attn-weight": "background-color"},
    "PositionalEncodingExplorer": {
        "path:is(.attn-sine, .attn-cosine, .attn-offset, .attn-product), .attn-hand": "stroke"
    },
}
# The least contrast of texts, and of what else has a colour that tells something, with what is behind them.
CONTRAST = """(card, marks) => {
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].map((value) => value / 255);
  };
  const over = ([r, g, b, a], ground) => [r, g, b].map((value, c) => a * value + (1 - a) * ground[c]);
  const ground = (e) => {
    if (!e) return [1, 1, 1];
    const colour = rgba(getComputedStyle(e).backgroundColor);
    return colour[3] === 1 ? colour.slice(0, 3) : over(colour, ground(e.parentElement));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const found = [];
  const judge = (e, ink, behind, least) => {
    const [one, other] = [light(over(rgba(ink), behind)), light(behind)];
    const ratio = Math.max(one, other) / Math.min(one, other);
    if (ratio < least) found.push(`${ratio.toFixed(2)}: ${e.outerHTML.slice(0, 120)}`);
  };
  for (const e of card.querySelectorAll("*")) {
    const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    // What cannot be used may be faint; and behind a chip is no single colour: tests/widgets/test_paged_cache.py.
    const isLeft = e.closest("[aria-disabled=true], :disabled") || getComputedStyle(e).backgroundImage !== "none";
    if (e.getBoundingClientRect().width < 2) continue; // only read aloud
    if (!own || isLeft || !e.checkVisibility({ visibilityProperty: true })) continue;
    // A bucket's number stands on its sector.
    const sector = e.matches(".attn-bucket") && card.querySelector(".attn-sector");
    const behind = sector ? rgba(getComputedStyle(sector).fill).slice(0, 3) : ground(e);
    judge(e, getComputedStyle(e)[e.matches("svg *") ? "fill" : "color"], behind, 4.5);
  }
  for (const [selector, property] of Object.entries(marks)) {
    for (const e of card.querySelectorAll(selector)) {
      const behind = ground(property === "background-color" ? e.parentElement : e);
      judge(e, getComputedStyle(e).getPropertyValue(property), behind, 3);
    }
  }
  return found;
}"""
# Parts that end right of the card, outside of what scrolls by itself.
OVER = """card => {
  const edge = card.getBoundingClientRect().right - 5;
  const scrolls = (e) => e !== card && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  return [...card.querySelectorAll("*:not(svg *)")]
    .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > edge && !scrolls(e.parentElement))
    .map((e) => `${e.getBoundingClientRect().right} of ${edge}: ${e.outerHTML.slice(0, 99)}`);
}"""
# What a page looks like to axe-core: where this is known, there is nothing new to find.
LIKE = """card => [...new Set([card, ...card.querySelectorAll("*:not(svg *, canvas)")].map((e) =>
  [e.tagName, e.getAttribute("class"), e.getAttribute("role"), e.checkVisibility()].join()))].sort().join(" ")"""


def body(widget):
    return f"<main><h1>t</h1>{widget.static_html()}</main>"


def use(card, kind):
    """Click in a widget, and press a key, which may undo the click."""
    card.locator(drawn.USES[kind].click).first.click(force=True)
    before = drawn.watched(card, kind)
    card.locator(drawn.USES[kind].focus).first.press(drawn.USES[kind].key)
    assert drawn.watched(card, kind) != before


def card_of(page):
    return page.locator(".attn-card").first


def test_the_tables_know_every_widget():
    every = {name for name in widgets.__all__ if name != "StaticWidget"}
    own = {kind.__name__ for kind in StaticWidget.__subclasses__() if kind.__module__.startswith("attn_book.")}
    assert every == own == set(WALKS) == set(drawn.USES) == set(STOPS) == set(KEYS) == set(CHANGES)


@each_theme
@each_kind
def test_axe_finds_no_fault_and_all_texts_stand_out(show, kind, theme):
    known = set()

    def check(page):
        like = card_of(page).evaluate(LIKE)
        if like not in known:
            known.add(like)
            page.evaluate(DRAWN)
            assert faults(page, rules={"target-size": {"enabled": True}}) == []
            assert card_of(page).evaluate(CONTRAST, MARKS.get(kind, {})) == []

    for walk in WALKS[kind]():
        with show(body(walk.widget), theme=theme, reduced_motion=walk.motion) as page:
            check(page)
            for _ in walk.drive(page):
                check(page)


@each_kind
def test_nothing_leaves_a_narrow_screen_or_paper(show, kind):
    for walk in WALKS[kind]():
        with show(walk.widget.static_html(), width=320, reduced_motion=walk.motion) as page:

            def check(page=page):
                assert page.evaluate("document.documentElement.scrollWidth") == 320
                assert card_of(page).evaluate(OVER) == []

            check()
            for _ in walk.drive(page):
                check()
            page.set_viewport_size({"width": 640, "height": 900})
            page.emulate_media(media="print")
            page.evaluate(DRAWN)
            assert page.evaluate("document.documentElement.scrollWidth") == 640
            assert card_of(page).evaluate(OVER) == []


@each_kind
def test_follows_the_theme_and_prints_light_and_without_controls(show, kind):
    looks = """e => [getComputedStyle(e).color, ...[...e.querySelectorAll("canvas")].map((one) => one.toDataURL()),
      ...[...e.querySelectorAll("[style*='color']")].map((one) => one.style.backgroundColor)]"""
    with show(sample(kind).static_html()) as page:
        card = card_of(page)
        light = card.evaluate(looks)
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.wait_for_selector(".attn-card[data-theme=dark]")
        page.evaluate(DRAWN)
        dark = card.evaluate(looks)
        pictures = kind in ("PatchAttentionExplorer", "TextToImage")  # the same in both themes
        assert pictures or all(one != other for one, other in zip(light, dark, strict=True))
        assert card.evaluate("e => (dispatchEvent(new Event('beforeprint')), e.dataset.theme)") == "light"
        page.emulate_media(media="print")
        page.evaluate(DRAWN)
        assert card.evaluate(looks)[:1] == light[:1]
        assert card.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator(".attn-card .attn-button").locator("visible=true").count() == 0


def test_a_page_that_names_no_theme_is_read_by_the_colour_of_its_text(show):
    html = f'<div style="background: #111; color: #eee">{sample("AttentionHeatmap").static_html()}</div>'
    with show(f"<script>delete document.documentElement.dataset.theme</script>{html}") as page:
        assert card_of(page).get_attribute("data-theme") == "dark"


@each_kind
def test_copies_on_a_page_are_independent(show, kind):
    with show(sample(kind).static_html() * 2, reduced_motion="reduce") as page:
        first, second = page.locator(".attn-card").all()
        before = first.evaluate("e => e.outerHTML"), drawn.watched(first, kind)
        use(second, kind)
        assert (first.evaluate("e => e.outerHTML"), drawn.watched(first, kind)) == before
        ids = page.locator("[id]").evaluate_all("all => all.map((e) => e.id)")
        assert len(ids) == len(set(ids))


@each_kind
def test_without_scripts_the_picture_stands(show, kind, drawn):
    widget = sample(kind)
    with show(widget.static_html(), java_script_enabled=False) as page:
        image = page.locator(".attn-picture")
        assert image.is_visible() and image.bounding_box()["width"] > 100
        assert image.get_attribute("alt") == widget.describe()


# What changes while a widget is away: a trait, and its new value.
CHANGES = {
    "AttentionHeatmap": {"row": 0},
    "AttentionPatternExplorer": {"n": 20},
    "KernelSmoother": {"bandwidth": 2.5},
    "MaskedWordExplorer": {"position": 2},
    "OnlineSoftmaxStepper": {"step": 1},
    "PagedCacheExplorer": {"step": 2},
    "PatchAttentionExplorer": {"image": 1},
    "PositionalEncodingExplorer": {"dim": 16},
    "Quiz": {},
    "TextToImage": {"caption": "zbb zaa zaa"},
    "Translator": {"sentence": "zaa zaa"},
}
CHANGE = "changes => Object.entries(changes).forEach((change) => receive(...change))"
COME = f"() => {{ document.body.append(el); return ({DRAWN})(); }}"
GO = f"() => {{ el.remove(); return ({DRAWN})(); }}"


@each_kind
def test_it_draws_itself_whenever_it_comes(detached, kind):
    with detached(sample(kind)) as page:
        page.evaluate(COME)
        card = card_of(page).element_handle()
        assert drawn.faults(card, kind, "light") == []
        for theme, changes in (("light", CHANGES[kind]), ("dark", {})):
            page.evaluate(GO)
            page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            page.evaluate(CHANGE, changes)
            page.evaluate(COME)
            assert drawn.faults(card, kind, theme) == []


@each_kind
def test_what_changes_before_it_comes_is_shown(detached, kind):
    widget, told = sample(kind), []
    for state, changes in ((state_of(widget), CHANGES[kind]), ({**state_of(widget), **CHANGES[kind]}, {})):
        with detached(widget, state, reduced_motion="reduce") as page:  # a translation then shows all its words at once
            page.evaluate("performance.now = () => 0")
            page.evaluate(CHANGE, changes)
            page.evaluate(COME)
            # The translator's samples keep the sentence that it began with.
            page.evaluate("document.querySelector('.attn-samples')?.remove()")
            told.append(card_of(page).inner_text())
    assert told[0] == told[1] and told[0]


@each_kind
def test_a_kernel_hears_each_change_once_is_heard_and_can_end_it(live, kind):
    widget = sample(kind)
    with live(widget, reduced_motion="reduce") as page:
        assert page.evaluate("told") == [], "to show it changes nothing"
        before = drawn.watched(card_of(page), kind)
        page.evaluate(CHANGE, CHANGES[kind])
        page.evaluate(DRAWN)
        assert kind == "Quiz" or page.evaluate("told") == []
        page.evaluate(CHANGE, {name: getattr(widget, name) for name in CHANGES[kind]})
        page.evaluate(DRAWN)
        assert drawn.watched(card_of(page), kind) == before
        use(card_of(page), kind)
        told = page.evaluate("told")
        # What is answered, and which block or word is looked at, stays on the page.
        assert bool(told) == (kind not in ("PagedCacheExplorer", "Quiz", "TextToImage", "Translator"))
        assert [one for one, other in itertools.pairwise(told) if one == other] == []
        for sent in told:
            widget.set_state({name: sent[name] for name in sent if sent[name] != getattr(widget, name)})
            assert state_of(widget) == sent
        assert page.evaluate("[(stop(), listening.length), el.children.length]") == [0, 0]


# A widget that counts how often it is laid out.
COUNTING = """
  window.laidOut = 0;
  var widget = { render: mount(() => ({ root: card("counting", "Counting"), layout: () => { laidOut += 1; } })) };
  var el = document.createElement("div");
  widget.render({ model: {}, el });
"""


def test_a_new_width_lays_it_out_anew_and_a_new_height_does_not(show):
    """A word that is pointed at may change the height: drawn anew, it would lose the click on it."""
    with show(f"<script>{Joined('page.js')}{COUNTING}</script>") as page:
        counts = []
        for change in (
            "document.body.append(el)",
            "el.firstChild.style.height = '300px'",
            "el.firstChild.style.height = '400px'",
            "el.style.width = '500px'",
            "el.style.display = 'none'",
            "el.style.display = ''",
            "el.remove()",
            "document.body.append(el)",
        ):
            page.evaluate(f"() => {{ {change}; return ({DRAWN})(); }}")
            counts.append(page.evaluate("laidOut"))
        assert counts == [1, 1, 1, 2, 2, 3, 3, 4]


# Of each element its class and what stands for its style: all the names and values in a number.
LOOKS = """all => all.map((root) => [root, ...root.querySelectorAll("*")].map((e) => {
  const style = getComputedStyle(e);
  let sum = 0;
  for (const name of [...style].sort()) {
    for (const letter of name + style.getPropertyValue(name)) sum = (31 * sum + letter.codePointAt(0)) | 0;
  }
  return `${e.tagName}.${e.getAttribute("class")} ${sum}`;
}))"""


def test_widgets_look_alike_alone_and_together(show):
    """All bring the shared rules, and none may depend on which came last."""
    pages = {kind: sample(kind).static_html() for kind in WALKS}
    looks = {}
    for order in (*([kind] for kind in pages), [*pages], [*pages][::-1]):
        # What the translator says of its own speed must not differ, for a text of another width looks otherwise.
        html = "<script>performance.now = () => 0;</script>" + "".join(pages[kind] for kind in order)
        with show(html, reduced_motion="reduce") as page:
            for kind, seen in zip(order, page.locator(".attn-card").evaluate_all(LOOKS), strict=True):
                assert [one for one in zip(looks.setdefault(kind, seen), seen, strict=True) if one[0] != one[1]] == []
