"""`make -C exercises assignments` and `… feedback`: what students receive, before and after."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config, PyFileConfigLoader

from exercises.gradebook import HERE

PAGE_SECONDS = 60.0
"""What a page of feedback may take; most take two or three."""

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["exercises.course"])


def assignments(course: Path = HERE) -> list[str]:
    """The names of a course's assignments: a folder of ``source`` each, with a notebook of the same name."""
    return sorted(path.stem for path in course.glob("source/*/*.ipynb") if path.stem == path.parent.name)


def release(course: Path, names: list[str]) -> None:
    """Write the students' versions, without solutions, hidden tests and rubrics, and put them into the gradebook.

    Raises:
        ValueError: there is no such assignment, or nbgrader could not make it; the last release stays.
    """
    for name in names:
        if name not in assignments(course):
            raise ValueError(f"assignment: expected one of {', '.join(assignments(course))}, got {name}")
        with _kept_on_failure(course / "release" / name):
            done = _nbgrader(course).generate_assignment(name, force=True, create=True)
            if not done["success"] and any(course.glob(f"autograded/*/{name}")):
                raise ValueError(
                    f"{name}: submissions to it have been graded, and nbgrader then lets no graded cell come or go. "
                    "Give the changed assignment a new name, or move exercises/gradebook.db away to begin anew"
                )
            _checked(done)


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
    return [f"{path.name}  {path.parent.name}: {why}" for path, why in zip(graded, said, strict=True) if why]


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
        if options.command == "assignments":
            release(options.course, names)
            print(f"{len(names)} assignments in {options.course / 'release'}")
        else:
            failed = give_feedback(options.course, names, jobs=os.cpu_count() or 1)
            pages = sum(1 for name in names for _ in options.course.glob(f"feedback/*/{name}/*.html"))
            print(f"{pages} pages in {options.course / 'feedback'}")
            if failed:
                sys.exit("make: these pages could not be made:\n" + "\n".join(failed))
    except ValueError as error:
        sys.exit(f"make: {error}")


if __name__ == "__main__":
    main()
