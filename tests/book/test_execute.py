"""`make execute`: what it stores of a notebook that ran."""

import importlib.util
import json

import nbformat
import pytest

from tests.book.built_site import ROOT

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def execute():
    spec = importlib.util.spec_from_file_location("book_execute", ROOT / "website" / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def notebook(*outputs, source="1 + 1"):
    cell = {
        "cell_type": "code",
        "execution_count": 1,
        "metadata": {"tags": ["keep"], "execution": {"iopub.execute_input": "12:00"}, "scrolled": True},
        "outputs": list(outputs),
        "source": source,
    }
    text = {"cell_type": "markdown", "metadata": {}, "source": "# Title"}
    metadata = {"widgets": {"state": {}}, "language_info": {"name": "python", "version": "3.11.7"}, "toc": {}}
    return {"cells": [text, cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}


def shown(data):
    return {"output_type": "display_data", "data": data, "metadata": {}}


def test_widget_views_are_dropped_and_their_html_kept(execute):
    made = execute.clean(
        notebook(shown({VIEW: {"model_id": "x"}, "text/html": "<b>w</b>"}), shown({VIEW: {"model_id": "y"}}))
    )
    (output,) = made.cells[1].outputs
    assert output["data"] == {"text/html": "<b>w</b>"}


def test_other_outputs_stay(execute):
    stream = {"output_type": "stream", "name": "stdout", "text": "2\n"}
    made = execute.clean(notebook(stream, shown({"text/plain": "2"})))
    assert [dict(output) for output in made.cells[1].outputs] == [stream, shown({"text/plain": "2"})]
    assert made.cells[1].execution_count == 1 and made.cells[1].source == "1 + 1"


def test_metadata_is_the_same_on_every_machine(execute):
    made = execute.clean(notebook())
    assert made.metadata == {"kernelspec": execute.KERNEL, "language_info": execute.LANGUAGE}
    assert "version" not in made.metadata.language_info
    assert made.cells[1].metadata == {"tags": ["keep"]}
    assert [cell.id for cell in made.cells] == ["cell-000", "cell-001"]
    assert (made.nbformat, made.nbformat_minor) == (4, 5)


def test_a_failing_cell_leaves_the_file_alone(execute, tmp_path, capsys):
    path = tmp_path / "trial.ipynb"
    path.write_text(json.dumps(notebook(source="1 / 0")), encoding="utf-8")
    before = path.read_bytes()
    assert execute.main([str(path)]) == 1
    said = capsys.readouterr().err
    assert "a cell failed, nothing was written" in said and "ZeroDivisionError" in said
    assert path.read_bytes() == before


def test_finished_progress_bars_are_dropped_and_warnings_kept(execute):
    def stderr(text):
        return {"output_type": "stream", "name": "stderr", "text": text}

    bar = "\r  3%|▎         | 36/1250 [00:01<00:41, 29.07step/s, BLEU=41]"
    made = execute.clean(notebook(stderr(bar), stderr("   \r"), stderr("UserWarning: 100% of it\n")))
    assert [output["text"] for output in made.cells[1].outputs] == ["UserWarning: 100% of it\n"]


def test_a_picture_stays_where_only_last_digits_differ(execute):
    def made(svg):
        return nbformat.from_dict(execute.clean(notebook(shown({"image/svg+xml": svg}))))

    stored = made('<path d="L 221.780946 201.2365"/>')
    for svg, stays in [
        ('<path d="L 221.7809 201.24"/>', True),
        ('<path d="L 221.7809 203.24"/>', False),
        ('<path d="M 221.7809 201.24"/>', False),
    ]:
        new = made(svg)
        execute.keep_pictures(stored, new)
        assert (new.cells[1].outputs == stored.cells[1].outputs) is stays
