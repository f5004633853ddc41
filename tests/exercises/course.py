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

# A cell that reads all that it can reach, and prints it, with the places in which a word stands (given backwards).
SPY = """
import ctypes, os, socket, subprocess, sys, traceback
word = {!r}[::-1].encode()
found = {{"environment": str(dict(os.environ)), "machine": str(os.uname()), "path": str(sys.argv + sys.path)}}
found["folder"] = os.getcwd() + socket.gethostname()
found["processes"] = str(subprocess.run(["sh", "-c", "ps aux; env; mount"], capture_output=True))
log = ctypes.create_string_buffer(2**20)
ctypes.CDLL(None).klogctl(3, log, 2**20)
found["kernel"] = log.value
try:
    import torch
    torch.ones(2) @ torch.ones(3)
except RuntimeError:
    found["traceback"] = traceback.format_exc()
for top, folders, files in os.walk("/", followlinks=False):
    if top == "/":
        folders[:] = [one for one in folders if one not in ("usr", "lib", "lib64", "bin", "python", "site")]
    for name in (*folders, *files):
        place = os.path.join(top, name)
        try:
            found[place] = os.readlink(place) if os.path.islink(place) else ""
            found[place] = found[place] or (open(place, "rb").read(10**6) if os.path.isfile(place) else "")
        except OSError as error:
            found[place] = str(error)
for number in range(256):
    try:
        os.set_blocking(number, False)
        found[f"descriptor {{number}}"] = str(os.fstat(number)) + str(os.path.realpath(f"/dev/fd/{{number}}"))
    except OSError:
        pass
    else:
        os.set_blocking(number, True)
    try:
        found[f"content {{number}}"] = os.pread(number, 1000, 0)
    except OSError:
        pass
texts = {{place: text if isinstance(text, bytes) else text.encode() for place, text in found.items()}}
print("FOUND", [place for place, text in texts.items() if word in text])
for place, text in texts.items():
    print(place, text[:300])
"""


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


def with_cell(notebook, *codes, after=None):
    """The notebook with one more cell of the student's, or some: at the end, or after a cell."""
    notebook = copy.deepcopy(notebook)
    at = len(notebook.cells) if after is None else notebook.cells.index(cell_named(notebook, after)) + 1
    notebook.cells[at:at] = map(nbformat.v4.new_code_cell, codes)
    return notebook
