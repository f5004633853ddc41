"""Every committed notebook, as it is stored."""

import json
import re

import nbformat
import pytest

from tests.book import notebooks as nb
from website import page_heads

each = pytest.mark.parametrize("path", nb.NOTEBOOKS, ids=lambda path: path.stem)
chapter = pytest.mark.parametrize("path", [p for p in nb.NOTEBOOKS if re.match(r"\d\d_", p.name)], ids=lambda p: p.stem)
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


@each
def test_every_code_cell_was_run_and_none_failed(path):
    cells = nb.code_cells(nb.read(path))
    counts = [cell["execution_count"] for cell in cells]
    assert counts == list(range(1, len(cells) + 1)), "run top to bottom from a fresh kernel: make execute"
    assert not [cell["source"] for cell in cells if any(out["output_type"] == "error" for out in cell["outputs"])]


@each
def test_nothing_is_stored_that_serves_a_live_kernel_only(path):
    notebook = nb.read(path)
    assert "widgets" not in notebook["metadata"]
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert "version" not in notebook["metadata"].get("language_info", {})
    assert WIDGET_VIEW not in path.read_text(encoding="utf-8")


@each
def test_stderr_holds_progress_bars_only(path):
    streams = [out for cell in nb.code_cells(nb.read(path)) for out in cell["outputs"] if out.get("name") == "stderr"]
    lines = [line for out in streams for line in re.split(r"[\r\n]", nb.text(out["text"]))]
    assert not [line for line in lines if not nb.is_progress(line)]


@each
def test_the_file_is_small(path):
    assert path.stat().st_size < 1_500_000


@each
def test_the_first_code_cell_is_the_launch_cell(path):
    assert nb.text(nb.code_cells(nb.read(path))[0]["source"]).strip() == nb.launch_cell().strip()


@each
def test_what_cells_draw_has_alt_text_and_a_caption(path):
    for cell in nb.code_cells(nb.read(path)):
        mimes = {mime for out in cell["outputs"] for mime in out.get("data", {})}
        shown = cell["metadata"].get("mystnb", {})
        if any(mime.startswith("image/") for mime in mimes) and "text/html" not in mimes:
            source = nb.text(cell["source"])
            assert shown.get("image", {}).get("alt", "").strip(), source
            assert shown.get("figure", {}).get("caption", "").strip(), source


@each
def test_what_an_opening_says_of_its_time_is_what_was_measured(path):
    record = json.loads(page_heads.RECORD.read_text(encoding="utf-8"))
    notebook = nbformat.read(path, as_version=4)
    assert page_heads.headed(notebook, path.stem, record) == notebook, "make heads"


@chapter
def test_a_chapter_has_six_exercises_with_solutions_and_a_widget(path):
    notebook = nb.read(path)
    text = "\n".join(nb.text(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    labels = re.findall(r"\{exercise(?:-start)?\}[^\n]*\n(?:\s*:[^\n]*\n)*?\s*:label:\s*(\S+)", text)
    assert len(labels) >= 6 and len(set(labels)) == len(labels)
    assert set(labels) == set(re.findall(r"\{solution(?:-start)?\}\s*(\S+)", text))
    assert "attn-static" in json.dumps(notebook)
