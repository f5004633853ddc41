"""A course in a folder of its own, and submissions to it."""

import copy
import json
import shutil
from pathlib import Path

import nbformat

from exercises.course import assignments, release

ROOT = Path(__file__).parents[2]
KIT = ROOT / "exercises"
ASSIGNMENTS = assignments()


def make_course(folder, names):
    """A copy of the course with some of its assignments, released as `make -C exercises assignments` does."""
    for name in names:
        shutil.copytree(KIT / "source" / name, folder / "source" / name)
    shutil.copy(KIT / "nbgrader_config.py", folder)
    release(folder, names)
    return folder


def source(course, name):
    return nbformat.read(course / "source" / name / f"{name}.ipynb", as_version=4)


def released(course, name):
    return nbformat.read(course / "release" / name / f"{name}.ipynb", as_version=4)


def hand_in(course, student, name, notebook, file=None):
    """Put a notebook (or any text) where a submission lies."""
    place = course / "submitted" / student / name / (file or f"{name}.ipynb")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook), encoding="utf-8")
    return place


def answered(course, name, answers):
    """The released notebook with some answers filled in: by the name of the cell."""
    notebook = released(course, name)
    for cell in notebook.cells:
        found = cell.metadata.get("nbgrader", {}).get("grade_id")
        if found in answers:
            cell.source = answers[found]
    return notebook


def solutions(course, name):
    """The right answer to each question, by the name of its cell."""
    cells = [cell for cell in source(course, name).cells if cell.metadata.nbgrader.solution]
    return {cell.metadata.nbgrader.grade_id: cell.source for cell in cells}


def cell_named(notebook, name):
    return next(cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == name)


def with_cell(notebook, code, *, after=None):
    """The notebook with one more cell of the student's: at the end, or after a cell."""
    notebook = copy.deepcopy(notebook)
    at = len(notebook.cells) if after is None else notebook.cells.index(cell_named(notebook, after)) + 1
    notebook.cells.insert(at, nbformat.v4.new_code_cell(code))
    return notebook
