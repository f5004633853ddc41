"""Every page in Firefox: nothing fails on it, formulas and pictures are there, and each widget is drawn and answers."""

import json
import os
import shutil

import pytest

from attn_book import widgets
from tests.book import built_site as site
from tests.browser import drawn
from tests.browser.firefox import QUIET, Firefox
from tests.browser.reader import BROKEN, FORMULAS

pytestmark = pytest.mark.browser

# A stored widget is known by the names in its state.
CLASSES = {frozenset(getattr(widgets, name).class_trait_names(static=True)): name for name in drawn.USES}
SET = "() => globalThis.MathJax?.startup?.promise.then(() => null)"


@pytest.fixture(scope="session")
def firefox(tmp_path_factory):
    """Firefox, from the path in FIREFOX or as the system has it."""
    path = os.environ.get("FIREFOX") or next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
    if path is None:
        pytest.skip("no Firefox found: install it, or set FIREFOX to its path")
    browser = Firefox(path, tmp_path_factory.mktemp("firefox"))
    yield browser
    browser.close()


def held(path):
    """The classes of a page's widgets."""
    states = site.parsed(path).select('.attn-static > script[type="application/json"]')
    return [CLASSES[frozenset(json.loads(state.get_text()))] for state in states]


def answers(firefox, card, name, act):
    """Do something to a widget, and wait until it shows something else."""
    before = drawn.watched(card, name)
    act()
    firefox.until(lambda: drawn.watched(card, name) != before)


@pytest.mark.parametrize("path", site.pages())
def test_a_page_in_firefox(firefox, address, path):
    firefox.open(address, path)
    firefox.evaluate(SET)
    found = firefox.evaluate(FORMULAS) if path in site.chapters() else []
    found += firefox.evaluate(BROKEN)
    names, cards = held(path), firefox.find(".attn-static .attn-card")
    assert len(cards) == len(names)
    for name, card in zip(names, cards, strict=True):
        use = drawn.USES[name]
        card.show()
        found += [f"{name}: {fault}" for fault in drawn.faults(card, name, "light")]
        firefox.find(use.click, card)[0].show()
        firefox.find(use.click, card)[0].point()  # upon which it may say more, and draw itself anew
        card.evaluate(QUIET)
        answers(firefox, card, name, firefox.find(use.click, card)[0].click)
        focus = firefox.find(use.focus, card)[0]
        answers(firefox, card, name, lambda focus=focus, key=use.key: focus.press(key))
    assert found + firefox.wrong == []


@pytest.mark.parametrize(
    ("act", "noticed"),
    [
        ("console.error('a')", "a"),
        ("setTimeout(() => { throw new Error('a'); })", "Error: a"),
        ("fetch('nowhere').catch(() => 0)", "404: "),
        ("new Image().src = 'http://example.org/a.png'", "another host: "),
    ],
)
def test_what_goes_wrong_is_noticed(firefox, address, act, noticed):
    firefox.open(address, "reference/notation.html")
    assert firefox.wrong == []
    firefox.evaluate(f"() => {{ {act}; }}")
    firefox.until(lambda: firefox.evaluate("() => 1") and any(fault.startswith(noticed) for fault in firefox.wrong))
