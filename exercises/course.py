"""`make -C exercises assignments` and `… feedback`: what students receive, before and after."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import multiprocessing
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import nbformat
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config, PyFileConfigLoader

from exercises.gradebook import HERE, names_given
from exercises.grading import grade
from exercises.judge import SECONDS
from exercises.sandbox import NoSandboxError, check_sandbox
from exercises.submission import grade_id, is_answer, is_test, printable, split_hidden

MARKERS = [f"### {end} {kind}" for kind in ("SOLUTION", "HIDDEN TESTS", "MARK SCHEME") for end in ("BEGIN", "END")]

PAGE_SECONDS = 180.0
"""What a page of feedback may take; most take two or three."""

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["exercises.course"])


def assignments(course: Path = HERE) -> list[str]:
    """The names of a course's assignments: a folder of ``source`` each, with a notebook of the same name."""
    return sorted(path.stem for path in course.glob("source/*/*.ipynb") if path.stem == path.parent.name)


def release(course: Path, names: list[str], *, run: bool = False) -> None:
    """Write the students' versions, without solutions, hidden tests and rubrics, and put them into the gradebook.

    With ``run`` the solutions are graded first, and have to earn all points.

    Raises:
        ValueError: there is no such assignment, its markers or tests are wrong, or nbgrader could not make it; the last
            release stays.
    """
    for name in names:
        if name not in assignments(course):
            raise ValueError(f"assignment: expected one of {', '.join(assignments(course))}, got {name}")
        check_source(course, name)
        if run:
            check_solutions(course, name)
        with _kept_on_failure(course / "release" / name):
            done = _nbgrader(course).generate_assignment(name, force=True, create=True)
            if not done["success"] and any(course.glob(f"autograded/*/{name}")):
                raise ValueError(
                    f"{name}: submissions to it have been graded, and nbgrader then lets no graded cell come or go. "
                    "Give the changed assignment a new name, or move exercises/gradebook.db away to begin anew"
                )
            _checked(done)


def check_source(course: Path, name: str) -> None:
    """See that nbgrader will find what it has to remove, and that all code is code.

    Raises:
        ValueError: it will not, or some is not; the message names the cell.
    """
    for cell in nbformat.read(course / "source" / name / f"{name}.ipynb", as_version=4).cells:
        where = f"{name}, cell {grade_id(cell)}"
        open_one = ""
        for line in cell.source.splitlines() if is_answer(cell) or cell.cell_type == "code" else ():
            text = line.strip()
            if text in MARKERS:
                kind = text.split(maxsplit=2)[2]
                expected = f"### {'END' if open_one else 'BEGIN'} {open_one or kind}"
                if text != expected:
                    raise ValueError(f"{where}: expected {expected}, got {text}")
                open_one = "" if open_one else kind
            elif text.startswith("#") and difflib.get_close_matches(text.upper(), MARKERS, 1, 0.7):
                raise ValueError(f"{where}: expected a marker such as {MARKERS[2]}, got {text}")
        if open_one:
            raise ValueError(f"{where}: expected ### END {open_one}, got no end")
        if is_answer(cell) and not any(text.strip() in MARKERS for text in cell.source.splitlines()):
            raise ValueError(f"{where}: expected ### BEGIN SOLUTION, got no solution")
        for part in split_hidden(cell.source) if is_test(cell) else ():
            try:
                compile(part, "<test>", "exec")
            except SyntaxError as error:
                raise ValueError(f"{where}: expected Python, got in a test: {error.text} ({error.msg})") from None


def check_solutions(course: Path, name: str) -> None:
    """Grade the solutions as if a student had handed them in.

    Raises:
        ValueError: they do not earn all points; the message names the test and says why.
    """
    path = course / "source" / name / f"{name}.ipynb"
    empty = nbformat.read(path, as_version=4)
    for cell in filter(is_answer, empty.cells):
        cell.source = ""
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(empty, Path(folder) / path.name)
        done = grade(path.parent, path, Path(folder) / path.name, SECONDS)
    for cell in done.notebook.cells if done.notebook else ():
        if done.points.get(str(grade_id(cell))) == 0 and cell.metadata.nbgrader.points and cell.cell_type == "code":
            said = " ".join(line for output in cell.outputs for line in output.get("traceback", ()))
            raise ValueError(f"{name}, cell {grade_id(cell)}: the solution fails: {said}")
    if done.notebook is None:
        raise ValueError(f"{name}: the solutions could not be run: {'; '.join(done.notes)}")


@contextlib.contextmanager
def _kept_on_failure(folder: Path) -> Iterator[None]:
    """Put a folder back as it was if what is done fails: nbgrader empties it first."""
    with tempfile.TemporaryDirectory() as temporary:
        kept = Path(temporary) / "kept"
        if folder.exists():
            shutil.copytree(folder, kept)
        try:
            yield
        except ValueError:
            if kept.exists():
                shutil.copytree(kept, folder, dirs_exist_ok=True)
            raise


def give_feedback(course: Path, names: list[str], *, jobs: int = 1, seconds: float = PAGE_SECONDS) -> list[str]:
    """Write a page for each graded submission, in a process of its own; what could not be made, and why.

    What a student has written can take a program that sets it as a page without end, so each page has its time.
    """
    graded = [path for name in names for path in sorted(course.glob(f"autograded/*/{name}")) if path.is_dir()]
    with ThreadPoolExecutor(jobs) as pool:
        said = pool.map(lambda path: _page_apart(course, path.name, path.parent.name, seconds), graded)
    return [
        f"{path.name}  {printable(path.parent.name)}: {printable(why)}"
        for path, why in zip(graded, said, strict=True)
        if why
    ]


def pack_feedback(course: Path, name: str) -> list[str]:
    """Pack the pages of an assignment for each platform that has collected it, under the names by which it knows whose
    they are; a line for each archive."""
    given = names_given(course, name)
    pages = {path.parts[-3]: path for path in sorted(course.glob(f"feedback/*/{name}/{name}.html"))}
    said = []
    for platform in sorted({where for where, _ in given.values()}):
        place = course / "feedback" / f"{name}-{platform}.zip"
        known = {
            student: called for student, (where, called) in given.items() if where == platform and student in pages
        }
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for student, called in known.items():
                archive.write(pages[student], f"{called}/{name}.html" if platform == "moodle" else f"{called}.html")
        said.append(f"{len(known)} of {len(pages)} pages in {place}")
    return said


def _page_apart(course: Path, name: str, student: str, seconds: float) -> str:
    """Why a page could not be made, or ""; an older one then goes, so that nobody takes it for today's."""
    ours, theirs = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_page, args=(theirs, course, name, student))
    process.start()
    theirs.close()
    try:
        why = str(ours.recv()) if ours.poll(seconds) else f"it took longer than {seconds:g} s"
    except EOFError:
        why = "its process ended by itself"
    finally:
        process.kill()
        process.join()
    if why:
        shutil.rmtree(course / "feedback" / student / name, ignore_errors=True)
    return why


def _page(pipe: Connection, course: Path, name: str, student: str) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # nbgrader's warnings; what failed is sent
    try:
        done = _nbgrader(course).generate_feedback(name, student, force=True)
        said = str(done.get("error") or done.get("log"))
        pipe.send("" if done["success"] else f"nbgrader: {said[-400:].strip()}")
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}"[:500])


def _nbgrader(course: Path) -> NbGraderAPI:
    config = Config(PyFileConfigLoader("nbgrader_config.py", str(course)).load_config())
    return NbGraderAPI(CourseDirectory(config=config), config=config)


def _checked(done: dict[str, object]) -> None:
    if not done["success"]:
        raise ValueError(f"nbgrader: {done.get('error') or done.get('log')}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make -C exercises")
    parser.add_argument("command", choices=("assignments", "feedback"))
    parser.add_argument("names", nargs="*", help="which; all if none")
    parser.add_argument("--course", type=Path, default=HERE, help="the folder of the course")
    options = parser.parse_args()
    names = options.names or assignments(options.course)
    try:
        if not names:
            raise ValueError(f"expected assignments in {options.course / 'source'}, got none")
        if options.command == "assignments":
            try:
                check_sandbox()
            except NoSandboxError as error:
                print(f"The solutions are not run: {error}.")
                release(options.course, names)
            else:
                release(options.course, names, run=True)
            print(f"{len(names)} assignments in {options.course / 'release'}")
        else:
            if odd := set(names) - set(assignments(options.course)):
                raise ValueError(
                    f"ASSIGNMENTS: expected some of {', '.join(assignments(options.course))}, got {', '.join(odd)}"
                )
            failed = give_feedback(options.course, names, jobs=os.cpu_count() or 1)
            pages = sum(1 for name in names for _ in options.course.glob(f"feedback/*/{name}/*.html"))
            packed = [line for name in names for line in pack_feedback(options.course, name)]
            print(f"{pages} pages in {options.course / 'feedback'}", *packed, sep="\n")
            if not failed and not pages:
                raise ValueError("nothing has been graded. Run `make -C exercises grade` before")
            if failed:
                sys.exit("make: these pages could not be made:\n" + "\n".join(failed))
    except ValueError as error:
        sys.exit(f"make: {error}")


if __name__ == "__main__":
    main()
