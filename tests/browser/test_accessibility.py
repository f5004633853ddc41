"""Menus, dialogs and folds without a fault that axe-core knows. Of the pages themselves: test_every_page.py."""

import pytest

from tests.book import built_site as site
from tests.browser.reader import faults, settle

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("width", "opener", "opened"),
    [
        (1280, ".search-button, .search-button-field", "#pst-search-dialog"),
        (1280, ".dropdown-launch-buttons button", ".dropdown-launch-buttons .dropdown-menu"),
        (1280, ".dropdown-download-buttons button", ".dropdown-download-buttons .dropdown-menu"),
        (1280, ".dropdown-source-buttons button", ".dropdown-source-buttons .dropdown-menu"),
        (320, ".primary-toggle", "#pst-primary-sidebar-modal"),
        (320, ".secondary-toggle", "#pst-secondary-sidebar-modal"),
    ],
)  # fmt: skip
def test_menus_and_dialogs_have_no_fault(visit, width, opener, opened, theme):
    page = visit(site.chapters()[0], width=width, theme=theme).page
    page.locator(opener).locator("visible=true").first.click()
    page.locator(opened).wait_for()
    settle(page)
    assert faults(page, within=opened) == []


def test_a_fold_is_named_by_its_own_line(visit):
    """Not by a label in its stead (a rule that axe-core has, but counts as experimental)."""
    fold = "#main-content details"
    folded = [path for path in site.chapters() if site.parsed(path).select(f"{fold} > summary")]
    assert folded and not [p for p in site.pages() if site.parsed(p).select(f"{fold} > summary[aria-label]")]
    assert "Setup on Colab" in visit(folded[0]).page.locator(fold).first.aria_snapshot()


def test_faults_are_found_and_named(browser):
    page = browser.new_page()
    start = "<html lang='en'><title>t</title><body style='background: #fff'><main><h1>t</h1>"
    page.set_content(f"{start}<p>legible</p></main>")
    assert faults(page) == []
    page.set_content(f"{start}<img src='data:,'><p style='color: #bbb'>faint</p></main>")
    named = {fault.split(" on ")[0]: fault.splitlines()[1:] for fault in faults(page)}
    assert named == {
        "image-alt (critical)": ["  ['img']", '  <img src="data:,">'],
        "color-contrast (serious)": ["  ['p']", '  <p style="color: #bbb">faint</p>'],
    }
    page.close()
