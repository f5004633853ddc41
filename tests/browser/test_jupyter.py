"""Widgets beside a kernel, in a real JupyterLab: all cells run, each widget is scrolled to and used.

One notebook holds a sample of each widget. ``EVERY_PAGE=1 make test-browser`` also runs it in Notebook 7, which shows
notebooks by JupyterLab's own code, and every page with a widget in JupyterLab.
"""

import os
from contextlib import contextmanager

import nbformat
import pytest

from tests.book import notebooks as nb
from tests.book.test_stored_widgets import HOLDERS
from tests.browser import drawn, jupyter
from tests.widgets.test_shared import SAMPLES

pytestmark = pytest.mark.browser

# An error of Notebook 7's own, as it opens any notebook.
ITS_OWN = "Cannot read properties of undefined (reading 'schema')"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
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


def visit(browser, server, view, name, expected, known="never"):
    """Run a notebook; see, use, leave and see again each expected widget. Errors that hold `known` are expected."""
    with jupyter.opened(browser, server, view, name) as seen:
        page = seen.page
        cells = jupyter.run_all(page)
        ran = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in ran] == list(range(1, len(ran) + 1))
        for cell in ran:
            failed = [output for output in cell["outputs"] if output["output_type"] == "error"]
            assert not failed or "raises-exception" in cell["metadata"].get("tags", []), failed
        widgets = shown(cells)
        assert widgets == expected
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


# So that every click and key changes something, twice.
LIVELY = {
    "KernelSmoother": "query=3.0",
    "OnlineSoftmaxStepper": "step=0",
    "Quiz": "questions=SAMPLES['Quiz'].changes['questions'] * 4",
}
SAMPLER = [
    nbformat.v4.new_code_cell("from tests.widgets.test_shared import SAMPLES"),
    *(
        cell
        for name in SAMPLES
        for cell in (
            nbformat.v4.new_code_cell(f"SAMPLES[{name!r}].make({LIVELY.get(name, '')})"),
            nbformat.v4.new_markdown_cell("Something to scroll past.\n\n" * 40),
        )
    ),
]
"""The cells of a notebook with one widget of each kind, each a screen away from the next."""
EACH = [(number, name) for number, name in zip(range(1, len(SAMPLER), 2), SAMPLES, strict=True)]


@contextmanager
def served(application, home):
    with jupyter.serve(application, home) as server:
        sampler = nbformat.v4.new_notebook(cells=SAMPLER, metadata={"kernelspec": KERNEL})
        nbformat.write(sampler, home / "book" / "chapters" / "sampler.ipynb")
        yield server


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with served("lab", tmp_path_factory.mktemp("lab")) as server:
        yield server


def test_widgets_live_in_jupyterlab(browser, lab):
    visit(browser, lab, "lab/tree", "sampler.ipynb", EACH)


@pytest.mark.skipif("EVERY_PAGE" not in os.environ, reason="takes minutes; EVERY_PAGE=1 make test-browser runs it")
def test_widgets_live_in_notebook_7(browser, tmp_path):
    with served("notebook", tmp_path) as server:
        visit(browser, server, "notebooks", "sampler.ipynb", EACH, known=ITS_OWN)


@pytest.mark.parametrize("path", HOLDERS if os.environ.get("EVERY_PAGE") else [], ids=lambda path: path.stem)
def test_pages_live_in_jupyterlab(browser, lab, path):
    visit(browser, lab, "lab/tree", path.name, shown(nb.read(path)["cells"]))


def test_every_kind_of_widget_is_met():
    assert set(SAMPLES) == set(drawn.USES)
