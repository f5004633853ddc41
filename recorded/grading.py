"""What it takes to grade a class of 200: right, half-right, untouched and endless notebooks, one assignment."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat

SEEDS = (0,)
NAME = "01_pooling"
CLASS = {"right": 130, "without its last answer": 40, "untouched": 26, "with an endless loop": 4}
SECONDS = 20.0  # what a cell may take


def run(folder: Path) -> dict[str, Any]:
    """Hand in for a class in a folder of its own, grade it, and keep the times and the points."""
    from exercises.course import release
    from exercises.grade import grade_all
    from exercises.gradebook import HERE

    with tempfile.TemporaryDirectory() as temporary:
        course = Path(temporary)
        for path in (HERE / "nbgrader_config.py", HERE / "source" / NAME / f"{NAME}.ipynb"):
            place = course / path.relative_to(HERE)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
        release(course, [NAME])
        _hand_in(course)
        jobs = os.cpu_count() or 1
        begun = time.perf_counter()
        done = grade_all(course, [NAME], jobs=jobs, seconds=SECONDS)
        seconds = time.perf_counter() - begun
    points: dict[str, set[float]] = {}
    for (_, student), graded in done.items():
        kind = student.rsplit(" ", 1)[0]
        points.setdefault(kind, set()).add(sum(value or 0 for value in graded.points.values()))
    return {
        "assignment": NAME,
        "class": CLASS,
        "jobs": jobs,
        "cell_seconds": SECONDS,
        "seconds_in_all": round(seconds),
        "points": {kind: sorted(found) for kind, found in points.items()},
    }


def _hand_in(course: Path) -> None:
    source = nbformat.read(course / "source" / NAME / f"{NAME}.ipynb", as_version=4)
    released = nbformat.read(course / "release" / NAME / f"{NAME}.ipynb", as_version=4)
    answers = {cell.metadata.nbgrader.grade_id: cell.source for cell in source.cells if cell.metadata.nbgrader.solution}
    last = [
        cell.metadata.nbgrader.grade_id
        for cell in source.cells
        if cell.metadata.nbgrader.grade_id in answers and cell.cell_type == "code"
    ][-1]
    loop = nbformat.v4.new_code_cell("while True:\n    pass")
    for kind, count in CLASS.items():
        notebook = nbformat.from_dict(released)
        for cell in notebook.cells:
            name = cell.metadata.nbgrader.grade_id
            if name in answers and kind != "untouched" and (kind != "without its last answer" or name != last):
                cell.source = answers[name]
        if kind == "with an endless loop":
            notebook.cells.append(loop)
        for number in range(count):
            place = course / "submitted" / f"{kind} {number}" / NAME / f"{NAME}.ipynb"
            place.parent.mkdir(parents=True)
            nbformat.write(notebook, place)
