"""A student's notebook, put in order against the assignment's: whatever was deleted, edited or copied, what is graded
is the student's answers between the assignment's own cells. The file itself is never changed."""

from __future__ import annotations

import ast
import copy
import json
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

LARGEST, CELLS, CELL = 20 * 2**20, 1_000, 100_000
"""Bytes of a notebook, cells in it, and characters of a cell."""
NOTEBOOK = re.compile(r".*\.ipynb(\.txt|\.json)?", re.IGNORECASE | re.DOTALL)
"""A notebook's file, as browsers and mail programs name it, too."""
HIDDEN = ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
NOT_ANSWERED = "Nothing was handed in for this question."
TOO_LONG = "# This cell was too long and was left out."


@dataclass
class Submission:
    """The cells to run and to grade, in the order in which they stand; and what was found on the way."""

    cells: list[NotebookNode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    found: bool = False  # whether there was a notebook that could be read


def printable(text: str) -> str:
    """What somebody wrote, in one line and without what a terminal would act on."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def grade_id(cell: NotebookNode) -> str | None:
    """The name that nbgrader gave a cell, if any."""
    found = cell.get("metadata", {}).get("nbgrader", {})
    name = found.get("grade_id") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def is_answer(cell: NotebookNode) -> bool:
    """Whether a cell of the assignment is the student's to write."""
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def is_test(cell: NotebookNode) -> bool:
    """Whether a cell of the assignment is graded by running it."""
    about = cell.metadata.get("nbgrader", {})
    return bool(about.get("grade")) and not about.get("solution") and cell.cell_type == "code"


def split_hidden(source: str) -> tuple[str, str]:
    """A test's visible lines and its hidden ones."""
    visible: list[str] = []
    hidden: list[str] = []
    lines = visible
    for line in source.splitlines():
        if line.strip() == HIDDEN[0]:
            lines = hidden
        elif line.strip() == HIDDEN[1]:
            lines = visible
        else:
            lines.append(line)
    return "\n".join(visible), "\n".join(hidden)


def find(folder: Path, name: str) -> tuple[Path | None, list[str]]:
    """The notebook that a student has handed in, under its own name or another ("Copy of …").

    Of several the one with the right name counts, else the newest.
    """
    here = (p for p in folder.glob("*") if NOTEBOOK.fullmatch(p.name) and p.is_file() and not p.is_symlink())
    files = sorted(here, key=lambda p: p.stat().st_mtime)
    exact = [p for p in files if p.name == f"{name}.ipynb"]
    if not files:
        return None, ["no notebook was handed in"]
    chosen = (exact or files)[-1]
    notes = [] if exact else [f"taken from the file {chosen.name!r}"]
    if len(files) > 1:
        notes.append(f"{len(files)} notebooks were handed in; {chosen.name!r} was graded")
    return chosen, notes


def read(path: Path, released: NotebookNode) -> Submission:
    """Read a notebook that was handed in, and put it in order against the assignment as it was released."""
    done = Submission()
    theirs = _cells(path, done.notes)
    order: list[NotebookNode] = []
    met: set[str] = set()
    known = {grade_id(cell): cell for cell in released.cells if grade_id(cell)}
    for cell in theirs:
        name = grade_id(cell)
        original = known.get(name)
        if original is None:
            order.append(_plain(cell))
        elif is_answer(original):
            order.append(_answer(cell, original))
            if name in met:
                done.notes.append(f"the cell {name!r} came more than once; all of it was run, in its order")
        elif name not in met:
            order.append(copy.deepcopy(original))
            if cell.source != original.source:
                added = _added(cell, original)
                more = ", and then what was added to it" if added else ""
                done.notes.append(f"the cell {name!r} was edited; the original was used{more}")
                order.extend(added)
        met.add(str(name))
    _restore(order, released, met, done.notes if theirs else [])
    done.cells, done.found = order, bool(theirs)
    return done


def _cells(path: Path, notes: list[str]) -> list[NotebookNode]:
    """The cells of a file that may be anything."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST // 2**20} MiB")
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        about = content.get("metadata")
        if content.get("nbformat", 4) < 4:
            content = nbformat.convert(nbformat.from_dict(content), 4)
        cells = [_cell(cell) for cell in content["cells"] if isinstance(cell, dict)]
        cells = [cell for cell in cells if cell.cell_type in ("code", "markdown")]
        if content["cells"] and not cells:
            raise ValueError("none of its cells can be read")
        if len(cells) > CELLS:
            raise ValueError(f"it has more than {CELLS:,} cells")
        for place, cell in enumerate(cells):  # before anything parses them
            if len(cell.source) > CELL:
                notes.append(f"cell {place + 1} holds more than {CELL:,} characters and was left out")
                cell.source = TOO_LONG
    except Exception as error:  # a file that came from outside may be wrong in any way
        why = error.strerror if isinstance(error, OSError) else str(error)[:200]  # not where the file lies here
        notes.append(f"the file could not be read as a notebook: {type(error).__name__}: {why}")
        return []
    kernel = about.get("kernelspec") if isinstance(about, dict) else None
    if isinstance(kernel, dict) and kernel.get("language", "python") not in ("python", None):
        notes.append(f"the notebook asked for the kernel {kernel.get('name')!r}; it was run as Python")
    return cells


def _cell(found: dict[str, Any]) -> NotebookNode:
    """A cell, whatever it holds beside or in place of its text."""
    text = found.get("source")
    text = "".join(map(str, text)) if isinstance(text, list) else str(text or "")
    about = found.get("metadata")
    cell = nbformat.v4.new_code_cell(metadata=nbformat.from_dict(about) if isinstance(about, dict) else {})
    cell.cell_type = str(found.get("cell_type"))
    cell.source = text.encode("utf-8", "replace").decode()  # JSON can hold halves of characters, which no file can
    return cell


def _plain(cell: NotebookNode) -> NotebookNode:
    """A cell that the student has added."""
    make = nbformat.v4.new_code_cell if cell.cell_type == "code" else nbformat.v4.new_markdown_cell
    return make(cell.source)


def _added(cell: NotebookNode, original: NotebookNode) -> list[NotebookNode]:
    """What a student has added to one of our cells: new statements, as a cell of their own; of a test, new imports."""
    if cell.cell_type != "code" or original.cell_type != "code":
        return []
    kinds = (ast.Import, ast.ImportFrom) if is_test(original) else ast.stmt
    ours = {ast.dump(node) for node in parsed(original.source).body}
    try:
        found = [node for node in parsed(cell.source).body if isinstance(node, kinds) and ast.dump(node) not in ours]
        return [nbformat.v4.new_code_cell("\n".join(map(ast.unparse, found)))] if found else []
    except RecursionError:
        return []  # it is edited beyond what anyone means


def parsed(source: str) -> ast.Module:
    """A cell's code, with what IPython alone understands turned into the calls that it stands for; nothing where it is
    no code at all."""
    for change in (str, TransformerManager().transform_cell):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a student's odd literals
                return ast.parse(change(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return ast.Module([], [])


def _answer(cell: NotebookNode, original: NotebookNode) -> NotebookNode:
    answer = copy.deepcopy(original)
    answer.source = cell.source
    return answer


def _restore(order: list[NotebookNode], released: NotebookNode, met: set[str], notes: list[str]) -> None:
    """Put back the assignment's cells that are missing, each after the one that it follows.

    A missing answer of code is not put back: its stub could hide what the student wrote in a cell of their own.
    """
    last = -1
    for original in released.cells:
        name = grade_id(original)
        if name in met:
            last = max(i for i, cell in enumerate(order) if grade_id(cell) == name)
            continue
        if name:
            notes.append(f"the cell {name!r} was missing")
        if is_answer(original) and original.cell_type == "code":
            continue
        cell = copy.deepcopy(original)
        if is_answer(original):
            cell.source = NOT_ANSWERED
        last += 1
        order.insert(last, cell)


def defined_names(source: NotebookNode) -> list[str]:
    """What a student is asked to define: the functions and classes of the assignment's own solutions."""
    tree = [ast.parse(cell.source) for cell in source.cells if cell.cell_type == "code" and is_answer(cell)]
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for module in tree for node in module.body if isinstance(node, kinds)]
