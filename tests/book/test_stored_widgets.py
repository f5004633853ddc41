"""The widgets that notebooks hold, against the package's own scripts and styles."""

import json
import re
import shutil

import pytest
import torch

from attn_book.widgets import AttentionHeatmap, OnlineSoftmaxStepper
from tests.book import notebooks as nb
from website import widgets


def stored(path):
    """The HTML of the widgets in a notebook."""
    outputs = [out for cell in nb.code_cells(nb.read(path)) for out in cell["outputs"]]
    html = [nb.text(out["data"]["text/html"]) for out in outputs if "text/html" in out.get("data", {})]
    return [text for text in html if 'class="attn-static' in text]


HOLDERS = [path for path in nb.NOTEBOOKS if stored(path)]


@pytest.mark.parametrize("path", HOLDERS, ids=lambda path: path.stem)
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
    with pytest.raises(ValueError, match="former, step, tile, values: run the notebook with make execute"):
        widgets.renew(html.replace('"scores":', '"former":'))


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
