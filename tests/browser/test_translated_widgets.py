"""Widgets in a translated book: every text is the catalogue's, in all their states, and what it holds stays text.

The catalogue sets each message between ⟦ and ⟧, with gaps for the values. So what stands outside of these was not said,
and has to be data: a token, a number, a symbol.
"""

import json
import re
from contextlib import contextmanager

import pytest

from attn_book.widgets import Quiz
from tests.browser.walks import WALKS, sample
from tests.widgets.said import catalogue, extracted

pytestmark = pytest.mark.browser

GAP = re.compile(r"\{\w+\}")
WORD = re.compile(r"[^\W\d_]{2,}")
# What is drawn on a canvas is no text of the page: it is kept here.
RECORD = """<script>
  window.drawn = [];
  for (const name of ["fillText", "strokeText"]) {
    CanvasRenderingContext2D.prototype[name] = (text) => drawn.push(String(text));
  }
</script>"""
COLLECT = """() => {
  const said = ["aria-label", "aria-valuetext", "aria-description", "aria-roledescription", "aria-placeholder",
                "title", "placeholder", "alt", "label"];
  const texts = [];
  const attributes = [];
  for (const card of document.querySelectorAll(".attn-static")) {
    const walk = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      if (!walk.currentNode.parentElement.closest("script, style")) texts.push(walk.currentNode.data);
    }
    for (const e of card.querySelectorAll("*")) {
      for (const name of said) if (e.hasAttribute(name)) attributes.push(`${name}: ${e.getAttribute(name)}`);
      if (e.matches("input[type=button], input[type=submit]")) attributes.push(`value: ${e.value}`);
    }
  }
  return [texts, attributes, drawn];
}"""


def marked(message):
    """A message between the signs, which leave out its gaps: the values must speak for themselves."""
    return f"⟦{GAP.sub(lambda gap: f'⟧{gap[0]}⟦', message)}⟧"


def page_of(widget, words):
    """The widget as a translated page has it, the catalogue before it."""
    held = json.dumps(words).replace("<", "\\u003c")
    return f"<script>var attentionBookWords = {held};</script>{RECORD}{widget.static_html()}"


def outside(texts):
    """What of each text stands outside the signs, which may open in one and close in another, and how deep it ends."""
    depth, found = 0, []
    for text in texts:
        rest = ""
        for letter in text:
            depth += (letter == "⟦") - (letter == "⟧")
            rest += letter if depth == 0 and letter != "⟧" else " "
        found.append(rest)
    return found, depth


def untold(texts, data):
    """The texts of which some word is neither the catalogue's nor data; those, too, whose gaps were left open."""
    rests, depth = outside(texts)
    assert depth == 0, texts
    words = [{word for word in WORD.findall(rest) if word.isalpha()} for rest in rests]  # and no raised digits
    bad = [text for text, found in zip(texts, words, strict=True) if found - data]
    return bad + [text for text in texts if GAP.search(text) and text not in data]


@contextmanager
def translated(show, widget, data, seen, **options):
    """A page with the widget, and what checks it as it stands and keeps what was seen."""
    words = {**catalogue(marked), **{text: f"⟦{text}⟧" for text in widget.said()}}
    with show(page_of(widget, words), **options) as page:

        def check():
            texts, attributes, drawn = page.evaluate(COLLECT)
            assert untold(texts, data) == []
            # Their names are the page's own.
            assert [text for text in [*attributes, *drawn] if untold([text.split(": ", 1)[-1]], data)] == []
            seen.extend([*texts, *attributes, *drawn])

        yield page, check


def unseen(kind, seen):
    """The messages of a widget that stood on none of its pages."""
    everything = "\n".join(seen)
    filled = {text: ".*".join(re.escape(f"⟦{part}⟧") for part in GAP.split(text)) for text in extracted(str(kind._esm))}
    return {text for text, pattern in filled.items() if not re.search(pattern, everything)}


# With so few words, all the patterns have fewer scores than full attention at some length that is counted.
NEVER = {"No fewer scores than full attention up to n\u00a0=\u00a0{n}."}


@pytest.mark.parametrize("kind", WALKS)
def test_all_that_is_said_is_the_catalogues_and_all_of_the_catalogue_is_said(show, kind):
    seen, prose = [], set()
    for walk in WALKS[kind]():
        prose |= {f"⟦{text}⟧" for text in walk.widget.said() if "`" not in text}
        # Tokens are cut after 23 letters.
        parts = {word[:count] for text in walk.data for word in WORD.findall(text) for count in (23, None)}
        with translated(show, walk.widget, parts | set(walk.data), seen, reduced_motion=walk.motion) as (page, check):
            check()
            for _ in walk.drive(page):
                check()
    assert unseen(type(walk.widget), seen) - NEVER == set()
    assert {text for text in prose if not any(text in one for one in seen)} == set()


HOSTILE = '<img src=x onerror="window.hit = 1"></script><i>$& $` $1 {{name} {} { {constructor} {k} ⟦'


@pytest.mark.parametrize("words", [None, {}, "hostile", "numbers"])
@pytest.mark.parametrize("kind", WALKS)
def test_what_a_catalogue_holds_is_text_and_what_it_lacks_is_english(show, kind, words):
    held = catalogue(lambda _: {"hostile": HOSTILE, "numbers": 3}[words]) if isinstance(words, str) else words
    widget = sample(kind)
    with show(widget.static_html() if held is None else page_of(widget, held), reduced_motion="reduce") as page:
        card = page.locator(".attn-card")
        assert card.count() == 1 and page.locator("img, .attn-card :is(i, script)").count() == 0
        assert page.evaluate("window.hit") is None
        text = card.evaluate("e => e.textContent")
        assert ("$& $` $1" in text) == (words == "hostile") and "function" not in text
        if not held:
            assert "NaN" not in text and "undefined" not in text and "[object" not in text


def test_values_are_put_in_once_and_as_they_are(show):
    """A value that looks like a gap, or like a name of what was found, is not looked into."""
    script = str(Quiz._esm).replace("export default", "const widget =")
    body = f"<script>var attentionBookWords = {{'{{a}} of {{b}}': '{{b}} von {{a}}', one: 'eins'}};{script}</script>"
    with show(body) as page:
        asked = {
            "say('one')": "eins",
            "say('two')": "two",
            "say('constructor')": "constructor",
            "say('__proto__')": "__proto__",
            "say('{a} of {b}', { a: '{b}', b: '$& $1 {a}' })": "$& $1 {a} von {b}",
            "say('{a} of {b}', { a: 1, b: 0 })": "0 von 1",
            "say('{a}, {toString}, {c}, {}, {', { a: 'x' })": "x, {toString}, {c}, {}, {",
        }
        assert {call: page.evaluate(call) for call in asked} == asked


def test_what_is_not_said_is_found():
    assert untold(["⟦Layer ⟧3⟦ of ⟧⟦all⟧", " → ", "zaa 0.5"], {"zaa"}) == []
    assert untold(["⟦Which ", "q", " is it?⟧"], set()) == []
    assert untold(["⟦Layer⟧ of 3", "zbb", "⟦{gap}⟧"], {"zaa"}) == ["⟦Layer⟧ of 3", "zbb", "⟦{gap}⟧"]
