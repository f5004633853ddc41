"""The buttons at the head of a page work."""

import pytest

from tests.book import built_site as site

pytestmark = pytest.mark.browser


def test_the_buttons_that_had_inline_handlers_work(visit):
    seen = visit(site.chapters()[0])
    page = seen.page
    page.evaluate("() => { window.print = () => { window.printed = (window.printed ?? 0) + 1; }; }")
    page.locator(".dropdown-download-buttons button").first.click()
    page.get_by_role("button", name="Print this page").click()
    page.wait_for_function("window.printed === 1")  # once all pictures are there
    page.keyboard.press("Escape")
    for is_full in ("true", "false"):
        page.locator(".btn-fullscreen-button").click()
        page.wait_for_function(f"Boolean(document.fullscreenElement) === {is_full}")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    for event, theme in (("beforeprint", "light"), ("afterprint", "dark")):
        page.evaluate("name => dispatchEvent(new Event(name))", event)
        assert page.locator(f"html[data-theme={theme}]").count()
    assert seen.wrong == []


def test_a_letter_above_the_glossary_leads_to_its_first_term(visit):
    page = visit("reference/glossary.html").page
    page.get_by_role("navigation", name="A–Z").get_by_role("link", name="M").click()
    box = "document.querySelector('{}').getBoundingClientRect()".format
    page.wait_for_function(f"{box('.letters')}.bottom <= {box('#term-mask')}.top && {box('#term-mask')}.top < 200")
