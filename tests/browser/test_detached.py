"""Widgets rendered before they are on the page, taken from it, changed meanwhile and put back, as notebooks do."""

import json

import pytest

from attn_book import widgets
from attn_book.widgets.base import Joined
from tests.book.test_stored_widgets import HOLDERS, stored
from tests.browser import drawn
from website import widgets as renewing

pytestmark = pytest.mark.browser

# What changes while the widget is away: a trait, and its new value.
CHANGES = {
    "AttentionHeatmap": {"row": 0},
    "AttentionPatternExplorer": {"n": 20},
    "KernelSmoother": {"bandwidth": 5},
    "MaskedWordExplorer": {"sentence": 1},
    "OnlineSoftmaxStepper": {"step": 1},
    "PagedCacheExplorer": {"step": 2},
    "PatchAttentionExplorer": {"image": 1},
    "PositionalEncodingExplorer": {"dim": 16},
    "Quiz": {},
    "Translator": {"sentence": "the dog sleeps ."},
}
# A model as a kernel's is: others change it, and its listeners hear of that.
MODEL = """([script, state]) => {
  const listeners = {};
  window.model = {
    get: (name) => state[name],
    set: (name, value) => {
      state[name] = value;
      listeners[`change:${name}`]?.forEach((listener) => listener());
    },
    save_changes() {},
    on: (event, listener) => (listeners[event] ??= []).push(listener),
    off() {},
  };
  window.el = document.createElement("div");
  const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  return import(address).then(({ default: widget }) => { widget.render({ model, el }); });
}"""
# A widget that counts how often it is laid out.
COUNTING = """
  window.laidOut = 0;
  const widget = { render: mount(() => ({ root: card("counting", "Counting"), layout: () => { laidOut += 1; } })) };
"""
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def test_the_table_knows_every_widget():
    every = {name for name in widgets.__all__ if getattr(widgets, name) is not widgets.StaticWidget}
    assert set(drawn.USES) == set(CHANGES) == every


@pytest.fixture(scope="module")
def states():
    """The state of one widget of each class, as a notebook holds it."""
    every = [renewing.read_stored(html) for path in HOLDERS for html in stored(path)]
    return {widget.__name__: json.loads(kept[3]) for widget, kept in every}


@pytest.mark.parametrize("name", CHANGES)
def test_it_draws_itself_whenever_it_comes(show, states, name):
    widget = getattr(widgets, name)
    with show(f"<style>{widget._css}</style>") as page:
        page.evaluate(MODEL, [str(widget._esm), states[name]])
        come = f"document.body.append(el); ({FRAMES})()"
        page.evaluate(come)
        card = page.locator(".attn-card").element_handle()
        assert drawn.faults(card, name, "light") == []
        for theme, changes in (("light", CHANGES[name]), ("dark", {})):
            page.evaluate(f"el.remove(); ({FRAMES})()")
            page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            page.evaluate("changes => Object.entries(changes).forEach((change) => model.set(...change))", changes)
            page.evaluate(come)
            assert drawn.faults(card, name, theme) == []


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_before_it_comes_is_shown(show, states, name):
    widget = getattr(widgets, name)
    texts = []
    for state, changes in ((states[name], CHANGES[name]), ({**states[name], **CHANGES[name]}, {})):
        with show(f"<style>{widget._css}</style>") as page:
            page.emulate_media(reduced_motion="reduce")  # a translation then shows all its words at once
            page.evaluate("performance.now = () => 0")
            page.evaluate(MODEL, [str(widget._esm), state])
            page.evaluate("changes => Object.entries(changes).forEach((change) => model.set(...change))", changes)
            page.evaluate(f"document.body.append(el); ({FRAMES})()")
            # The translator's samples keep the sentence that it began with.
            page.evaluate("document.querySelector('.attn-samples')?.remove()")
            texts.append(page.locator(".attn-card").inner_text())
            page.emulate_media(reduced_motion=None)
    assert texts[0] == texts[1] and texts[0]


def test_a_new_width_lays_it_out_anew_and_a_new_height_does_not(show):
    """A word that is pointed at may change the height: drawn anew, it would lose the click on it."""
    with show("") as page:
        page.evaluate(MODEL, [f"{Joined('page.js')}{COUNTING}export default widget;", {}])
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
            page.evaluate(f"{change}; ({FRAMES})()")
            counts.append(page.evaluate("laidOut"))
        assert counts == [1, 1, 1, 2, 2, 3, 3, 4]
