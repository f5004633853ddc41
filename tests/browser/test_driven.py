"""The driver that uses every page notices what only a control does; and the buttons at the head of a page work."""

import pytest

from tests.book import built_site as site
from tests.browser.reader import drive

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    "act",
    [
        "fetch('https://example.org/a').catch(() => 0)",
        "new Image().src = '//example.org/a.png'",
        "navigator.sendBeacon('https://example.org/')",
        "window.open('https://example.org/')",
        "throw new Error('a')",
    ],
)
def test_what_only_a_control_does_is_noticed(visit, act):
    seen = visit("reference/notation.html")
    seen.page.evaluate(
        "act => { const b = document.createElement('button'); document.querySelector('article').append(b);"
        "b.addEventListener('click', new Function(act)); }",
        act,
    )
    assert seen.wrong == []
    drive(seen.page)
    for _ in range(200):  # the browser tells of a new window in its own time
        if seen.wrong or len(seen.page.context.pages) == 2:
            return
        seen.page.wait_for_timeout(100)
    raise AssertionError(f"nothing was noticed of {act}")


def test_the_buttons_that_had_inline_handlers_work(visit):
    seen = visit(site.chapters()[0])
    page = seen.page
    page.evaluate("() => { window.print = () => { window.printed = (window.printed ?? 0) + 1; }; }")
    page.locator(".dropdown-download-buttons button").first.click()
    page.locator(".btn-download-pdf-button").click()
    assert page.evaluate("window.printed") == 1
    page.keyboard.press("Escape")
    for is_full in ("true", "false"):
        page.locator(".btn-fullscreen-button").click()
        page.wait_for_function(f"Boolean(document.fullscreenElement) === {is_full}")
    assert seen.wrong == []
