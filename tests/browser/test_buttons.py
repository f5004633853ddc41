"""The buttons at the head of a page work."""

import pytest

from tests.book import built_site as site

pytestmark = pytest.mark.browser


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
