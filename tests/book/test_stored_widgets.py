"""The widgets that notebooks hold, against the package's own scripts and styles."""

import json
import re
import shutil

import nbformat
import pytest
import torch
import traitlets

from attn_book import widgets as every
from attn_book.widgets import AttentionHeatmap, OnlineSoftmaxStepper
from attn_book.widgets.base import Whole
from tests.book import notebooks as nb
from website import widgets


def stored(path):
    """The HTML of the widgets in a notebook."""
    outputs = [out for cell in nb.code_cells(nb.read(path)) for out in cell["outputs"]]
    html = [nb.text(out["data"]["text/html"]) for out in outputs if "text/html" in out.get("data", {})]
    return [text for text in html if 'class="attn-static' in text]


def named(path):
    """The notebook and the classes of its widgets, by which `make check-widget` chooses."""
    states = [widgets.STORED.fullmatch(html)[3] for html in stored(path)]
    return "-".join([path.stem, *sorted({widgets.widget_of(set(json.loads(state))).__name__ for state in states})])


HOLDERS = [path for path in nb.NOTEBOOKS if stored(path)]


@pytest.mark.parametrize("path", HOLDERS, ids=named)
def test_each_has_todays_script_and_style(path):
    # Compared with `==` outside of the assertion: pytest would work for minutes on how half a megabyte differs.
    old = [text[:200] for text in stored(path) if widgets.renew(text) != text]
    assert not old, "stored widgets are behind attn_book/widgets: make widgets"


def test_what_is_stored_stays_and_what_is_embedded_is_renewed():
    html = AttentionHeatmap(torch.ones(1, 1), ["<b>"], ['"&'], title="1 < 2").static_html()
    assert widgets.renew(html) == html
    old = html.replace("const widget =", "const former =").replace("<style>\n", "<style>\n.former {}\n")
    old = old.replace('data-attn-id="', 'data-attn-new="" data-attn-id="')
    assert old != html and widgets.renew(old) == html
    other = re.sub(r'(alt="|base64,)', r"\1XYZ", old)
    assert widgets.renew(other) == re.sub(r'(alt="|base64,)', r"\1XYZ", html)
    assert widgets.renew("<table></table>") == "<table></table>"


def test_a_state_that_no_widget_has_is_refused():
    html = OnlineSoftmaxStepper([0, 1], [1, 2]).static_html()
    with pytest.raises(ValueError, match=r"^OnlineSoftmaxStepper: .*former"):
        widgets.renew(html.replace('"scores":', '"former":'))


class Slid(OnlineSoftmaxStepper):
    """The stepper with new traits, as somebody may add them."""

    speed = traitlets.Int(3).tag(static=True)


class Unset(Slid):
    must = Whole(traitlets.Undefined, 0, 9).tag(static=True)


def test_a_new_trait_is_filled_with_its_default(tmp_path, monkeypatch, capsys):
    html = OnlineSoftmaxStepper([0, 1], [1, 2]).static_html()
    monkeypatch.setattr(every, "OnlineSoftmaxStepper", Slid)
    new = Slid([0, 1], [1, 2])
    assert widgets.renew(html) == new._html(new.picture())
    monkeypatch.setattr(every, "OnlineSoftmaxStepper", Unset)
    path = tmp_path / "10_page.ipynb"
    output = nbformat.v4.new_output("display_data", {"text/html": html})
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=[output])]), path)
    assert widgets.main([str(path)]) == 1
    assert capsys.readouterr().err.startswith("make: 10_page.ipynb: Unset: expected a default of must")


def test_a_notebook_changes_in_its_widgets_alone(tmp_path):
    path = tmp_path / "page.ipynb"
    shutil.copy(HOLDERS[0], path)
    widgets.renew_notebook(path)
    today = path.read_text(encoding="utf-8")
    assert not widgets.renew_notebook(path)
    former = today.replace("const widget =", "const former =")
    path.write_text(former, encoding="utf-8")
    assert widgets.renew_notebook(path) and path.read_text(encoding="utf-8") == today
    assert former != today and json.loads(today)["nbformat"] == 4
