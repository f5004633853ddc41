"""Grades one submission: puts it in order, runs it in the sandbox, runs the tests outside."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from exercises.borrowed import borrowed
from exercises.judge import Sandbox, Shown, StudentError, StudentObject, run_tests, student_process
from exercises.sandbox import NoSandboxError
from exercises.submission import (
    NOT_ANSWERED,
    Submission,
    defined_names,
    find,
    grade_id,
    is_answer,
    is_test,
    read,
    split_hidden,
)

ENDS = 5
"""After so many cells that end the process, a notebook's added cells are run no more."""
CUT = "\n\n(The rest was left out.)"
UNCHANGED = "This answer is as it was handed out."
NOTES, WORDS, ALL_WORDS = 20, 20_000, 200_000
"""Notes kept of a submission; characters of Markdown kept of a cell, and of all cells together."""
# Where a browser would act on what somebody has written: tags, links and pictures `](`, addresses of links `]:`, and
# addresses alone.
LIVE = re.compile(r"(?<=<)(?=[a-zA-Z/!?])|(?<=\])(?=[(:])|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=\S)(?=@\w)", re.IGNORECASE)


@dataclass
class Graded:
    """A graded submission: points by cell (None: to be read by a person), the notebook with outputs, and notes."""

    points: dict[str, float | None] = field(default_factory=dict)
    notebook: NotebookNode | None = None  # None: it could not be graded, and a person must look
    notes: list[str] = field(default_factory=list)
    unread: bool = False  # there was no notebook, or none that can be read


def grade(
    folder: Path,
    source_path: Path,
    released_path: Path,
    seconds: float,
    *,
    refuse: bool = False,
    shut_in: bool = True,
) -> Graded:
    """Grade what a student has handed in in ``folder``, against the assignment with its solutions and as released.

    A cell may take so many seconds, and a call by a test a quarter of that. With ``refuse``, code that borrows what the
    assignment does not (borrowed.py) earns nothing by tests until a person has looked. Without ``shut_in`` there is no
    sandbox.
    Never raises: where it could not be graded, the notes say why.
    """
    done = Graded()
    try:
        source, released = (nbformat.read(path, as_version=4) for path in (source_path, released_path))
        path, done.notes = find(folder, released_path.stem)
        submission = Submission(cells=list(released.cells)) if path is None else read(path, released)
        done.notes += submission.notes
        done.unread = not submission.found
        taken = borrowed(submission.cells, released)
        done.notes += [f"the code uses {name}, which the assignment does not" for name in taken]
        with student_process(seconds=seconds, shut_in=shut_in) as student:
            shown = _run(submission.cells, released, student, done.notes)
            verdicts = _test(source, student)
        done.notes = list(dict.fromkeys(done.notes))
        done.notes[NOTES:] = [f"and {len(done.notes) - NOTES} more"] if len(done.notes) > NOTES else []
        done.notes += [f"{name} was graded as it stood at its test; a later cell changes it" for name in student.later]
        _write(done, submission.cells, released, shown, verdicts)
        if refuse and taken:
            done.points = dict.fromkeys(done.points)
    except (Exception, NoSandboxError, StudentError) as error:  # one that fails never stops the others
        return Graded(notes=[*done.notes, f"it could not be graded: {type(error).__name__}: {str(error)[:500]}"])
    return done


def _run(cells: list[NotebookNode], released: NotebookNode, student: Sandbox, notes: list[str]) -> dict[int, Shown]:
    """Run all but the tests, in order; what each cell showed, by its place.

    An answer that is as it was released is not run: it would undo one that was written elsewhere.
    """
    stubs = {grade_id(cell): cell.source for cell in released.cells if is_answer(cell)}
    shown: dict[int, Shown] = {}
    ended = last = 0
    for place, cell in enumerate(cells):
        try:
            if is_test(cell):
                student.mark(str(grade_id(cell)))
            elif cell.cell_type == "code" and cell.source.strip() == stubs.get(grade_id(cell), "").strip():
                shown[place] = Shown(error=UNCHANGED if cell.source.strip() else "")
            elif cell.cell_type == "code" and (ended < ENDS or grade_id(cell)):
                last = place
                shown[place] = student.run(cell.source)
        except StudentError as error:
            ended += 1
            shown[last] = Shown(error=str(error))
            notes.append(f"{error}, in cell {last + 1}; all other cells were run without it")
    if ended >= ENDS:
        notes.append(f"after {ENDS} such cells only the assignment's own were run")
    return shown


def _test(source: NotebookNode, student: Sandbox) -> dict[str, tuple[str, str]]:
    """Run the tests: what each printed, and why it failed."""
    names: dict[str, Any] = {}
    for cell in source.cells:
        if cell.cell_type == "code" and not is_answer(cell) and not is_test(cell):
            exec(compile(cell.source, "<assignment>", "exec"), names)  # the course's own code
    names.update({name: StudentObject(student, name) for name in defined_names(source)})
    tests = {str(grade_id(cell)): split_hidden(cell.source) for cell in source.cells if is_test(cell)}
    return run_tests(tests, names, student)


def _write(
    done: Graded,
    cells: list[NotebookNode],
    released: NotebookNode,
    shown: dict[int, Shown],
    verdicts: dict[str, tuple[str, str]],
) -> None:
    """Give the points, and write into the notebook what a student may see: no hidden test."""
    stubs = {grade_id(cell): cell.source for cell in released.cells}
    # An answer may also stand in a cell of its own: then a person looks, even if the cell for it is empty.
    elsewhere = any(
        cell.cell_type == "markdown" and grade_id(cell) not in stubs and cell.source.strip() for cell in cells
    )
    words = 0
    for place, cell in enumerate(cells):
        name, about = str(grade_id(cell)), cell.metadata.get("nbgrader", {})
        if is_test(cell):
            printed, failed = verdicts[name]
            cell.source = split_hidden(cell.source)[0]
            cell.outputs = [*_stream(printed), *_failure(failed)]
            done.points[name] = 0.0 if failed else float(about["points"])
        elif about.get("grade"):
            empty = cell.source.strip() in ("", stubs[name].strip(), NOT_ANSWERED) and not elsewhere
            done.points[name] = 0.0 if empty and done.points.get(name, 0.0) is not None else None
        elif cell.cell_type == "code":
            cell.outputs = _outputs(shown.get(place, Shown(error="This cell was not run.")))
        if cell.cell_type == "code":
            cell.execution_count = None
        elif name not in stubs or is_answer(cell):
            kept = min(WORDS, max(0, ALL_WORDS - words))
            words += len(cell.source)
            cell.source = _harmless(cell.source[:kept] + (CUT if len(cell.source) > kept else ""))
    about = "".join(f"\n- {note[0].upper()}{note[1:]}." for note in done.notes)
    seen = f"**Seen when this was graded**\n{_harmless(about)}"
    head = [nbformat.v4.new_markdown_cell(seen)] if done.notes else []
    done.notebook = nbformat.v4.new_notebook(cells=[*head, *cells], metadata=dict(released.metadata))


def _harmless(markdown: str) -> str:
    """A student's words without scripts, links and pictures from elsewhere: a blank makes plain text of each."""
    return LIVE.sub(" ", markdown)


def _outputs(shown: Shown) -> list[NotebookNode]:
    pictures = [nbformat.v4.new_output("display_data", {"image/png": picture}) for picture in shown.pictures]
    return [*_stream(shown.printed), *pictures, *_failure(shown.error)]


def _stream(text: str) -> list[NotebookNode]:
    return [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []


def _failure(text: str) -> list[NotebookNode]:
    return [nbformat.v4.new_output("error", ename="", evalue="", traceback=text.splitlines())] if text else []
