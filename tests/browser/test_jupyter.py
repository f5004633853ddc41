"""Widgets beside a kernel, in a real JupyterLab and Notebook 7: all cells run, each widget is scrolled to and used.

``EVERY_PAGE=1 make test-browser`` does so on every page with a widget, instead of on one page for each kind of widget.
"""

import json
import os

import pytest

from tests.book import notebooks as nb
from tests.book.test_stored_widgets import HOLDERS
from tests.browser import drawn, jupyter

pytestmark = pytest.mark.browser

# An error of Notebook 7's own, as it opens any notebook.
ITS_OWN = "Cannot read properties of undefined (reading 'schema')"
VIEW = "application/vnd.jupyter.widget-view+json"
CARD = "cell => jupyterapp.shell.currentWidget.content.widgets[cell].node.querySelector('.attn-card')"
# An active cell out of view stays on the page, with no height and an opacity of 0.
SEEN = "card => card.checkVisibility({ contentVisibilityAuto: true, opacityProperty: true })"
GONE = f"card => !({SEEN})(card)"


def held(outputs):
    """The classes of the widgets among the outputs of a cell."""
    texts = [nb.text(output.get("data", {}).get("text/plain", "")) for output in outputs]
    return [text.split("(")[0] for text in texts if text.split("(")[0] in drawn.USES]


def shown(cells):
    """The widgets that cells show: the number of the cell, and the class."""
    return [(number, name) for number, cell in enumerate(cells) for name in held(cell.get("outputs", []))]


KINDS = {path: {name for _, name in shown(nb.read(path)["cells"])} for path in HOLDERS}


def quickest():
    """For each kind of widget the page that runs in the shortest time, and the page of a published model."""
    seconds = json.loads((nb.ROOT / "recorded/results/run_times.json").read_text(encoding="utf-8"))["seconds"]
    pages = [path for path in HOLDERS if path.stem in seconds]
    each = {
        min((path for path in pages if name in KINDS[path]), key=lambda path: seconds[path.stem]) for name in drawn.USES
    }
    return sorted(each | {path for path in pages if path.stem == "21_microscope"})


def answers(page, card, name, act):
    """Whether the widget shows something else after the act."""
    before = drawn.watched(card, name)
    act()
    page.wait_for_function(
        "([card, selector, attribute, before]) => [card, ...card.querySelectorAll('*')]"
        ".filter((element) => element.matches(selector)).map((element) => element.getAttribute(attribute))"
        ".join() !== before",
        arg=[card, *drawn.USES[name].watched.split("@"), ",".join(value or "" for value in before)],
    )


def use(page, card, name):
    """Click in a widget and press a key: it answers each."""
    each = drawn.USES[name]
    answers(page, card, name, lambda: card.query_selector(each.click).click())
    answers(page, card, name, lambda: card.query_selector(each.focus).press(each.key))


def theme(page):
    return "light" if page.evaluate("document.body.dataset.jpThemeLight") == "true" else "dark"


def wear(page):
    """Change to the other theme, and wait until the page wears it."""
    other = {"light": "JupyterLab Dark", "dark": "JupyterLab Light"}[theme(page)]
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", other)
    page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=other)


def visit(browser, server, view, path, known="never"):
    """Run a notebook; see, use, leave and see again each of its widgets. Errors that hold `known` are expected."""
    with jupyter.opened(browser, server, view, path.name) as seen:
        page = seen.page
        cells = jupyter.run_all(page)
        ran = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in ran] == list(range(1, len(ran) + 1))
        for cell in ran:
            failed = [output for output in cell["outputs"] if output["output_type"] == "error"]
            assert not failed or "raises-exception" in cell["metadata"].get("tags", []), failed
        widgets = shown(cells)
        assert widgets == shown(nb.read(path)["cells"])
        for number, name in widgets:
            assert any(VIEW in output.get("data", {}) for output in cells[number]["outputs"])
            jupyter.scroll(page, number, f"() => ({CARD})({number})")
            card = page.evaluate_handle(CARD, number).as_element()
            jupyter.scroll(page, number, SEEN, card)
            assert drawn.faults(card, name, theme(page)) == [], name
            use(page, card, name)
            left = drawn.watched(card, name)
            # Far away, the theme changes; back again, the widget is as it was left, and follows.
            jupyter.scroll(page, 0 if number > len(cells) / 2 else len(cells) - 1, GONE, card)
            wear(page)
            jupyter.scroll(page, number, SEEN, card)
            assert drawn.faults(card, name, theme(page)) == [], name
            assert drawn.watched(card, name) == left
            wear(page)  # now in view, while JupyterLab hides everything for a moment, and may lay out the cells anew
            jupyter.scroll(page, number, SEEN, card)
            assert drawn.faults(card, name, theme(page)) == [], name
            use(page, card, name)
        assert [error for error in seen.wrong if known not in error] == []


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with jupyter.serve("lab", tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.mark.parametrize("path", HOLDERS if os.environ.get("EVERY_PAGE") else quickest(), ids=lambda path: path.stem)
def test_widgets_live_in_jupyterlab(browser, lab, path):
    visit(browser, lab, "lab/tree", path)


def test_widgets_live_in_notebook_7(browser, tmp_path):
    (path,) = [path for path in HOLDERS if path.stem == "14_linear"]
    with jupyter.serve("notebook", tmp_path) as server:
        visit(browser, server, "notebooks", path, known=ITS_OWN)


def test_every_kind_of_widget_is_met():
    assert set().union(*(KINDS[path] for path in quickest())) == set().union(*KINDS.values()) == set(drawn.USES)
