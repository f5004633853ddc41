"""`make -C exercises assignments` and `… feedback`: what students receive, before and after."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config, PyFileConfigLoader

from exercises.gradebook import HERE


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


def give_feedback(course: Path, names: list[str]) -> int:
    """Write a page for each graded submission; how many.

    Raises:
        ValueError: nbgrader could not make one.
    """
    for name in names:
        if any(course.glob(f"autograded/*/{name}")):
            _checked(_nbgrader(course).generate_feedback(name, force=True))
    return sum(1 for name in names for _ in course.glob(f"feedback/*/{name}/*.html"))


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
            print(f"{give_feedback(options.course, names)} pages in {options.course / 'feedback'}")
    except ValueError as error:
        sys.exit(f"make: {error}")


if __name__ == "__main__":
    main()
