"""In Firefox: nothing fails on a page, formulas and pictures are there, and each widget is drawn and answers."""

import os
import shutil

import pytest

from tests.book import built_site as site
from tests.browser import drawn
from tests.browser.firefox import QUIET, Firefox
from tests.browser.reader import BROKEN, FORMULAS
from tests.browser.walks import sample

pytestmark = pytest.mark.browser

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


def answers(firefox, card, name, act):
    """Do something to a widget, and wait until it shows something else."""
    before = drawn.watched(card, name)
    act()
    firefox.until(lambda: drawn.watched(card, name) != before)


@pytest.mark.parametrize("path", ["index.html", *site.chapters()[:3]])
def test_a_page_in_firefox(firefox, address, path):
    firefox.open(address, path)
    firefox.evaluate(SET)
    assert firefox.evaluate(FORMULAS) + firefox.evaluate(BROKEN) + firefox.wrong == []
    firefox.until(lambda: len(firefox.find(".attn-static .attn-card")) == len(site.parsed(path).select(".attn-static")))


def test_a_way_is_followed_in_firefox(firefox):
    """From a disk, where each page has a memory of its own."""
    firefox.open(f"{site.HTML.as_uri()}/", "chapters/11_kv_cache.html?way=inference")
    (following,) = firefox.until(lambda: firefox.find(".right-next[href*=way]"))
    following.show()
    following.click()
    # Until the next page has loaded, a question may fall between the two.
    firefox.until(lambda: firefox.ask("session.status") and "12_serving" in firefox.loaded)
    assert firefox.find(".way-bar")


def test_widgets_are_drawn_and_answer_in_firefox(firefox, tmp_path):
    body = "".join(sample(name).static_html() for name in drawn.USES)
    html = f'<!doctype html><html data-theme="light"><meta charset="utf-8"><title>t</title><body>{body}</body></html>'
    (tmp_path / "widgets.html").write_text(html, encoding="utf-8")
    firefox.open(f"{tmp_path.as_uri()}/", "widgets.html")
    cards = firefox.find(".attn-static .attn-card")
    for (name, use), card in zip(drawn.USES.items(), cards, strict=True):
        card.show()
        assert drawn.faults(card, name, "light") == [], name
        firefox.find(use.click, card)[0].show()
        firefox.find(use.click, card)[0].point()  # upon which it may say more, and draw itself anew
        card.evaluate(QUIET)
        answers(firefox, card, name, firefox.find(use.click, card)[0].click)
        focus = firefox.find(use.focus, card)[0]
        answers(firefox, card, name, lambda focus=focus, key=use.key: focus.press(key))
    assert firefox.wrong == []


@pytest.mark.parametrize(
    ("act", "noticed"),
    [
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
