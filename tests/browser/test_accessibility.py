"""axe-core finds no fault on any page: light, dark and narrow, all that is folded opened and every widget in use."""

import re
from importlib import resources

import pytest

from tests.book import built_site as site

pytestmark = pytest.mark.browser

LOOKS = {"light": (1280, "light"), "dark": (1280, "dark"), "narrow": (320, "light")}
# axe reads no MathML: to it, a table's heading that is a formula is empty. A screen reader reads the formula.
CONFIGURE = "axe.configure({rules: [{id: 'empty-table-header', selector: 'th:not(:has(math))'}]})"
CHECK = """([within, rules]) => axe.run(within, {resultTypes: ["violations"], rules}).then(found => found.violations)"""
# Colours do not depend on the width of the page, and to compare them is most of the work.
SAME_WHEN_NARROW = {"color-contrast": {"enabled": False}}


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core, as a package bundles it."""
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    return (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")


def faults(page, axe, within="html", rules=None):
    """What axe-core finds wrong with a page as it stands, a text for each element."""
    page.evaluate(axe)
    page.evaluate(CONFIGURE)
    return [
        f"{rule['id']} ({rule['impact']}) on {page.url}: {rule['help']}\n  {element['target']}\n  {element['html']}"
        for rule in page.evaluate(CHECK, [within, rules or {}])
        for element in rule["nodes"]
    ]


def use(page):
    """Open all that is folded, use every widget, and wait until the page has settled."""
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    page.evaluate("document.querySelectorAll('.toggle-button-hidden').forEach(button => button.click())")
    assert page.locator(".toggle-hidden").count() == 0
    for slide in page.locator(".attn-static input[type=range]").all():
        slide.press("End")
    for cell in page.locator(".attn-static [role=gridcell]").all():
        cell.press("ArrowRight")
        cell.press("Enter")
    page.evaluate("() => window.MathJax?.startup.promise")
    settle(page)


def settle(page):
    """Wait for fading colours, and for the theme, which lets keys reach what scrolls 0.3 s after a change of size."""
    page.wait_for_timeout(600)
    page.evaluate("() => Promise.all(document.getAnimations().map(animation => animation.finished))")


def test_every_page_of_the_table_of_contents_is_checked():
    listed = re.findall(r"\b(?:root|file): (\S+)", (site.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    assert len(listed) > 4
    assert {f"{name}.html" for name in [*listed, "search", "genindex"]} <= set(site.pages())


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("path", site.pages())
def test_a_page_has_no_fault(visit, axe, path, look):
    width, scheme = LOOKS[look]
    page = visit(path, width=width, scheme=scheme).page
    use(page)
    found = faults(page, axe, rules=SAME_WHEN_NARROW if look == "narrow" else None)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
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
)
def test_menus_and_dialogs_have_no_fault(visit, axe, width, opener, opened, scheme):
    page = visit(site.chapters()[0], width=width, scheme=scheme).page
    page.locator(opener).locator("visible=true").first.click()
    page.locator(opened).wait_for()
    settle(page)
    found = faults(page, axe, within=opened)
    assert not found, "\n".join(found)


def test_a_fold_is_named_by_its_own_line(visit):
    """Not by a label in its stead (a rule that axe-core has, but counts as experimental)."""
    fold = "#main-content details"
    folded = [path for path in site.chapters() if site.parsed(path).select(f"{fold} > summary")]
    assert folded and not [p for p in site.pages() if site.parsed(p).select(f"{fold} > summary[aria-label]")]
    assert "Show the code" in visit(folded[0]).page.locator(fold).first.aria_snapshot()


def test_a_fold_of_the_sidebar_is_named_after_its_page():
    for path in site.chapters():
        for summary in site.parsed(path).select("nav details > summary"):
            assert summary["aria-label"] == summary.find_parent("li").find("a").get_text(" ", strip=True)


def test_faults_are_found_and_named(browser, axe):
    page = browser.new_page()
    start = "<html lang='en'><title>t</title><body style='background: #fff'><main><h1>t</h1>"
    page.set_content(f"{start}<p>legible</p></main>")
    assert faults(page, axe) == []
    page.set_content(f"{start}<img src='data:,'><p style='color: #bbb'>faint</p></main>")
    named = {fault.split(" on ")[0]: fault.splitlines()[1:] for fault in faults(page, axe)}
    assert named == {
        "image-alt (critical)": ["  ['img']", '  <img src="data:,">'],
        "color-contrast (serious)": ["  ['p']", '  <p style="color: #bbb">faint</p>'],
    }
    page.close()
