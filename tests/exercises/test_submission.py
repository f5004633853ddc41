"""A notebook that was handed in is put in order, whatever was done to it."""

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from exercises.submission import NOT_ANSWERED, defined_names, find, grade_id, read, split_hidden


def cell(name, source, *, make=new_code_cell, **about):
    usual = {"grade": False, "solution": False, "locked": True, "schema_version": 3, "task": False}
    return make(source, metadata={"nbgrader": {**usual, "grade_id": name, **about}})


def assignment():
    return new_notebook(
        cells=[
            cell("title", "# Title", make=new_markdown_cell),
            cell("imports", "import torch"),
            cell("double", "def double(x):\n    raise NotImplementedError", solution=True, locked=False),
            cell("double_test", "assert double(2) == 4", grade=True, points=2),
            cell("why", "*Your answer.*", make=new_markdown_cell, solution=True, grade=True, points=3, locked=False),
        ]
    )


NAMES = ["title", "imports", "double", "double_test", "why"]


def names(submission):
    return [grade_id(cell) for cell in submission.cells]


@pytest.fixture
def handed_in(tmp_path):
    def write(notebook, file="double.ipynb"):
        path = tmp_path / file
        path.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook), encoding="utf-8")
        return read(path, assignment())

    return write


def test_answers_are_taken_and_everything_else_is_the_assignment_s(handed_in):
    notebook = assignment()
    for one in notebook.cells:
        one.source += "\n# mine"
    done = handed_in(notebook)
    assert names(done) == NAMES
    assert [one.source.endswith("# mine") for one in done.cells] == [False, False, True, False, True]
    assert sum("was edited; the original was used" in note for note in done.notes) == 3


def test_an_untouched_notebook_needs_no_note(handed_in):
    assert handed_in(assignment()).notes == []


def test_a_deleted_test_comes_back_in_its_place(handed_in):
    notebook = assignment()
    del notebook.cells[3]
    done = handed_in(notebook)
    assert names(done) == NAMES and done.notes == ["the cell 'double_test' was missing"]


def test_cells_of_the_student_s_own_stay_where_they_are(handed_in):
    notebook = assignment()
    notebook.cells.insert(2, new_code_cell("helper = 1"))
    notebook.cells.append(new_markdown_cell("thanks"))
    done = handed_in(notebook)
    assert names(done) == ["title", "imports", None, "double", "double_test", "why", None]


def test_copies_of_an_answer_are_all_kept_and_copies_of_a_test_are_not(handed_in):
    notebook = assignment()
    notebook.cells.extend([cell("double", "def double(x):\n    return 2 * x", solution=True), notebook.cells[3]])
    done = handed_in(notebook)
    assert names(done) == [*NAMES, "double"]
    assert done.notes == ["the cell 'double' came more than once; all of it was run, in its order"]


def test_a_missing_answer_of_code_is_not_put_back_over_the_student_s_own_cell(handed_in):
    notebook = assignment()
    notebook.cells[2] = new_code_cell("def double(x):\n    return 2 * x")  # its name was lost
    notebook.cells[4] = new_markdown_cell("lost as well")
    done = handed_in(notebook)
    assert names(done) == ["title", "imports", None, "double_test", "why", None]
    assert done.cells[4].source == NOT_ANSWERED


def test_a_notebook_without_any_of_our_cells_still_has_all_of_them(handed_in):
    done = handed_in(new_notebook(cells=[new_code_cell("def double(x): return 2 * x")]))
    assert [name for name in names(done) if name] == ["title", "imports", "double_test", "why"]


def test_an_answer_keeps_its_kind_of_cell(handed_in):
    notebook = assignment()
    notebook.cells[2] = cell("double", "in words", make=new_markdown_cell)
    assert handed_in(notebook).cells[2].cell_type == "code"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"cells": 3}',
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"a": 1}]}),
    ],
)
def test_a_file_that_is_no_notebook_is_said_to_be_none_and_costs_no_more_than_its_points(handed_in, text):
    done = handed_in(text)
    (note,) = done.notes
    assert note.startswith("the file could not be read as a notebook")
    assert [name for name in names(done) if name] == ["title", "imports", "double_test", "why"]


def test_a_byte_order_mark_and_old_versions_are_read(handed_in):
    old = json.loads(nbformat.writes(nbformat.v4.new_notebook(cells=[])))
    assert handed_in("\ufeff" + json.dumps(old)).notes == []
    three = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": [], "metadata": {}}]}
    assert handed_in(json.dumps(three)).notes == []


def test_a_file_that_is_too_large_is_not_read(handed_in, monkeypatch):
    monkeypatch.setattr("exercises.submission.LARGEST", 100)
    assert "larger than" in handed_in(assignment()).notes[0]


def test_a_file_that_cannot_be_opened_says_why_and_not_where_it_lies(tmp_path):
    (tmp_path / "double.ipynb").mkdir()
    (note, *_) = read(tmp_path / "double.ipynb", assignment()).notes
    assert "Is a directory" in note and str(tmp_path) not in note


def test_the_file_is_never_changed(handed_in, tmp_path):
    handed_in(new_notebook(cells=[]))
    before = (tmp_path / "double.ipynb").read_bytes()
    read(tmp_path / "double.ipynb", assignment())
    assert (tmp_path / "double.ipynb").read_bytes() == before


def test_the_notebook_with_the_right_name_counts_or_else_the_newest(tmp_path):
    assert find(tmp_path, "double") == (None, ["no notebook was handed in"])
    (tmp_path / "Copy of double.ipynb").write_text("{}")
    assert find(tmp_path, "double") == (
        tmp_path / "Copy of double.ipynb",
        ["taken from the file 'Copy of double.ipynb'"],
    )
    (tmp_path / "double.ipynb").write_text("{}")
    chosen, notes = find(tmp_path, "double")
    assert chosen.name == "double.ipynb" and notes == ["2 notebooks were handed in; 'double.ipynb' was graded"]


@pytest.mark.parametrize("file", ["double.ipynb.txt", "x.ipynb.json", "double.IPYNB"])
def test_a_notebook_is_known_by_any_of_its_endings(tmp_path, file):
    (tmp_path / file).write_text("{}")
    assert find(tmp_path, "double") == (tmp_path / file, [f"taken from the file {file!r}"])


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret.txt").write_text("{}")
    (tmp_path / "double.ipynb").symlink_to(tmp_path / "secret.txt")
    assert find(tmp_path, "double")[0] is None


def test_hidden_lines_are_told_from_visible_ones():
    both = "a\n### BEGIN HIDDEN TESTS\nb\n### END HIDDEN TESTS\nc"
    assert split_hidden(both) == ("a\nc", "b")
    assert split_hidden("a\n  ### BEGIN HIDDEN TESTS\nb") == ("a", "b")


def test_what_is_to_be_defined_is_read_from_the_solutions():
    assert defined_names(assignment()) == ["double"]
