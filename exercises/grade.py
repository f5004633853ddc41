"""`make -C exercises grade`: grade what has been handed in, each submission by itself, and write points and notebooks.

Reads ``submitted/STUDENT/ASSIGNMENT/``; writes ``autograded/STUDENT/ASSIGNMENT/`` and the gradebook.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue

import nbformat
from nbgrader.api import Gradebook
from sqlalchemy.exc import OperationalError

from exercises.gradebook import HERE, open_gradebook, record
from exercises.grading import Graded, grade
from exercises.judge import SECONDS
from exercises.sandbox import MEMORY, NoSandboxError, check_sandbox
from exercises.submission import printable

LIMIT = 600.0
"""Seconds after which a submission is given up, whatever it is doing."""

_RUNNING: set[BaseProcess] = set()
# Each submission is graded in a process forked from one that has imported everything already.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["exercises.grading"])


def grade_apart(folder: Path, source: Path, released: Path, seconds: float, refuse: bool, processor: int) -> Graded:
    """Grade in a process of its own, which may even crash, on one processor, in as much memory as a submission has."""
    ours, theirs = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_send, args=(theirs, folder, source, released, seconds, refuse, processor))
    process.start()
    _RUNNING.add(process)
    theirs.close()
    try:
        if ours.poll(LIMIT):
            return ours.recv()
        return Graded(notes=[f"grading it took longer than {LIMIT:g} s and was given up"])
    except EOFError:
        return Graded(notes=["grading it ended without a result"])
    finally:
        _RUNNING.discard(process)
        process.kill()
        process.join()


def _send(
    pipe: Connection, folder: Path, source: Path, released: Path, seconds: float, refuse: bool, processor: int
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    os.sched_setaffinity(0, {processor})
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    pipe.send(grade(folder, source, released, seconds, refuse=refuse))


def submissions(course: Path, wanted: list[str], student: str = "*") -> Iterator[tuple[str, str]]:
    """What is there to be graded: assignment and student, in order."""
    for released in sorted(course.glob("release/*/*.ipynb")):
        name = released.stem
        if not wanted or name in wanted:
            yield from (
                (name, path.parent.name)
                for path in sorted(course.glob(f"submitted/*/{name}"))
                if path.is_dir() and student in ("*", path.parent.name)
            )


def grade_all(
    course: Path, wanted: list[str], student: str = "*", *, jobs: int, seconds: float = SECONDS, refuse: bool = False
) -> dict[tuple[str, str], Graded]:
    """Grade everything, some at a time; a line for each as soon as it is done. Ctrl-C keeps what is done."""
    found = list(submissions(course, wanted, student))
    free: SimpleQueue[int] = SimpleQueue()
    for _, processor in zip(range(jobs), itertools.cycle(sorted(os.sched_getaffinity(0)))):
        free.put(processor)

    def one(item: tuple[str, str]) -> Graded:
        name, student = item
        source, released = (course / kind / name / f"{name}.ipynb" for kind in ("source", "release"))
        processor = free.get()
        try:
            return grade_apart(course / "submitted" / student / name, source, released, seconds, refuse, processor)
        finally:
            free.put(processor)

    done: dict[tuple[str, str], Graded] = {}
    with ThreadPoolExecutor(jobs) as pool, open_gradebook(course) as book:
        waiting = {pool.submit(one, item): item for item in found}
        try:
            for finished in as_completed(waiting):
                item = waiting[finished]
                done[item] = graded = _keep(course, book, item, finished.result())
                print(_line(*item, graded), flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in waiting):
                for process in list(_RUNNING):
                    process.kill()
                time.sleep(0.1)
            print(f"Stopped: {len(done)} of {len(found)} graded.", file=sys.stderr)
            raise
    return done


def _keep(course: Path, book: Gradebook, item: tuple[str, str], graded: Graded) -> Graded:
    """Write down what a submission has earned."""
    name, student = item
    handed_in = _handed_in(course / "submitted" / student / name, graded.notes)
    try:
        record(book, name, student, graded, handed_in)
    except OperationalError as error:  # another program has locked it for longer than SQLite waits
        book.db.rollback()
        graded = Graded(notes=[*graded.notes, f"the gradebook took no points: {error.orig}"])
    if graded.notebook is not None:
        _write(graded.notebook, course / "autograded" / student / name / f"{name}.ipynb")
    return graded


def _write(notebook: nbformat.NotebookNode, place: Path) -> None:
    """Write a notebook, all of it or nothing."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_suffix(".part")
    nbformat.write(notebook, part)
    part.replace(place)


def _handed_in(folder: Path, notes: list[str]) -> datetime | None:
    """When it was handed in (UTC), where nbgrader has left the time; a student may have written it."""
    path = folder / "timestamp.txt"
    if not path.exists():
        return None
    try:
        when = datetime.fromisoformat(path.read_text(encoding="utf-8").strip().replace(" UTC", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC).replace(tzinfo=None)
    except (OSError, OverflowError, ValueError):
        notes.append("its timestamp.txt holds no time")
        return None


def _line(name: str, student: str, graded: Graded) -> str:
    given = [points for points in graded.points.values() if points is not None]
    to_read = len(graded.points) - len(given)
    more = f", {to_read} to be read" if to_read else ""
    notes = "".join(f"\n    {printable(note)}" for note in graded.notes)
    points = f"{sum(given):g} points{more}" if graded.notebook else "NOT GRADED"
    return f"{name}  {printable(student)}: {points}{notes}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make -C exercises grade", description="Grade what has been handed in.")
    parser.add_argument("assignments", nargs="*", help="names; all if none")
    parser.add_argument("--student", default="*", help="one student alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="what a cell may take")
    parser.add_argument("--refuse", action="store_true", help="no points by tests to code that borrows, until you look")
    parser.add_argument("--course", type=Path, default=HERE, help="the folder of the course")
    options = parser.parse_args()
    if options.jobs < 1 or not options.seconds > 0:
        sys.exit("make: JOBS, SECONDS: expected positive numbers")
    known = [path.stem for path in options.course.glob("release/*/*.ipynb")]
    if odd := set(options.assignments) - set(known):
        sys.exit(f"make: ASSIGNMENTS: expected some of {', '.join(sorted(known)) or 'none'}, got {', '.join(odd)}")
    try:
        check_sandbox()
    except NoSandboxError as error:
        sys.exit(f"make: {error}.")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore Ctrl-C
    begun = time.monotonic()
    settings = {"jobs": options.jobs, "seconds": options.seconds, "refuse": options.refuse}
    try:
        done = grade_all(options.course, options.assignments, options.student, **settings)
    except KeyboardInterrupt:
        sys.exit(130)
    if not done:
        sys.exit(
            "make: nothing to grade. Expected submitted/STUDENT/ASSIGNMENT/*.ipynb, "
            "and `make -C exercises assignments` before."
        )
    seconds = time.monotonic() - begun
    failed = [f"{name}  {student}" for (name, student), graded in done.items() if graded.notebook is None]
    print(f"{len(done) - len(failed)} graded in {seconds:.0f} s, {options.jobs} at a time.")
    unread = [f"{name}  {student}" for (name, student), graded in done.items() if graded.unread]
    if unread:
        print("In these no notebook could be read:", *unread, sep="\n")
    if failed:
        print(*failed, sep="\n")
        sys.exit("make: these could not be graded; they keep what points they have.")


if __name__ == "__main__":
    main()
