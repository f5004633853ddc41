"""`make students` and `make collect`: the class list, and what the class has uploaded to Canvas or Moodle."""

from __future__ import annotations

import argparse
import csv
import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nbgrader.api import Gradebook

from exercises.gradebook import HERE, open_gradebook
from exercises.submission import LARGEST

# What a column may be called: nbgrader, Canvas's gradebook export, Moodle's list of participants.
COLUMNS = {
    "id": ("id", "SIS Login ID", "Username", "ID number"),
    "lms_user_id": ("lms_user_id", "ID"),
    "first_name": ("first_name", "First name"),
    "last_name": ("last_name", "Last name", "Surname"),
    "name": ("Student",),
    "email": ("email", "Email address"),
}
CANVAS = re.compile(r"[^_/]+(?:_LATE)?_(?P<user>\d+)_(?P<number>\d+)_.+\.ipynb")
MOODLE = re.compile(r"(?P<name>[^_/]+)_(?P<number>\d+)_assignsubmission_file_?/?.*\.ipynb")
STUDENT_ID = re.compile(r"[\w.@+-]+")


@dataclass(frozen=True)
class Student:
    """A line of the class list."""

    id: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    lms_user_id: str = ""


def read_class(path: Path) -> list[Student]:
    """Read a class list: nbgrader's columns, Canvas's or Moodle's.

    Raises:
        ValueError: a column is missing, or a line has no usable id; the message names the line. Nothing is imported.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        given = rows.fieldnames or []
        columns = {name: next((c for c in known if c in given), None) for name, known in COLUMNS.items()}
        if columns["id"] is None:
            raise ValueError(
                f"{path.name}: expected a column {' or '.join(COLUMNS['id'])}, got {', '.join(given) or 'none'}"
            )
        found = [_student(row, columns, f"{path.name}, line {rows.line_num}") for row in rows if _is_student(row)]
    twice = {one.id for one in found if sum(other.id == one.id for other in found) > 1}
    if twice:
        raise ValueError(f"{path.name}: expected each id once, got {', '.join(sorted(twice))} more than once")
    return found


def _is_student(row: dict[str, str | None]) -> bool:
    """Whether a line is about a person: Canvas adds one with the points, and one for trying things out."""
    name = (row.get("Student") or "").strip()
    return any((value or "").strip() for value in row.values()) and name not in ("Points Possible", "Student, Test")


def _student(row: dict[str, str | None], columns: dict[str, str | None], where: str) -> Student:
    about = {name: (row.get(column) or "").strip() if column else "" for name, column in columns.items()}
    last, _, first = about.pop("name").partition(", ")
    about["last_name"] = about["last_name"] or last
    about["first_name"] = about["first_name"] or first
    if not STUDENT_ID.fullmatch(about["id"]) or about["id"].startswith("."):
        raise ValueError(f"{where}: expected an id of letters, digits and . @ + - _, got {about['id']!r}")
    return Student(**about)


def add_class(book: Gradebook, students: list[Student]) -> None:
    """Put a class into the gradebook; those that are there already are brought up to date."""
    for one in students:
        about = {"first_name": one.first_name, "last_name": one.last_name, "email": one.email}
        book.update_or_create_student(one.id, **about, lms_user_id=one.lms_user_id or None)


def collect(book: Gradebook, download: Path, assignment: str, submitted: Path) -> tuple[list[str], list[str]]:
    """Put the notebooks of a downloaded archive where they will be graded; who has handed in, and what was left out.

    Of several notebooks of one student the latest counts. Nothing is written outside ``submitted``.

    Raises:
        ValueError: the file is no zip archive.
    """
    if not zipfile.is_zipfile(download):
        raise ValueError(f"download: expected a zip archive, got {download.name}")
    by_number = {str(one.lms_user_id): one.id for one in book.students if one.lms_user_id}
    by_name: dict[str, list[str]] = {}
    for one in book.students:
        by_name.setdefault(f"{one.first_name} {one.last_name}".strip(), []).append(one.id)
    done, left = {}, []
    with zipfile.ZipFile(download) as archive:
        members = [m for m in archive.infolist() if not m.is_dir()]
        for member in sorted(members, key=lambda m: _number(m.filename)):
            canvas, moodle = CANVAS.fullmatch(PurePosixPath(member.filename).name), MOODLE.fullmatch(member.filename)
            names = [by_number[canvas["user"]]] if canvas and canvas["user"] in by_number else []
            names = names or (by_name.get(moodle["name"], []) if moodle else [])
            if len(names) != 1:
                why = "belongs to nobody in the class list" if not names else f"could be from {' or '.join(names)}"
                left.append(f"{member.filename}: {why}")
            elif member.file_size > LARGEST:
                left.append(f"{member.filename}: larger than {LARGEST // 2**20} MiB")
            else:
                done[names[0]] = _put(archive, member, submitted / names[0] / assignment / f"{assignment}.ipynb")
    return sorted(done), left


def _number(name: str) -> int:
    """The number that Canvas or Moodle gave an upload: the later, the greater."""
    found = CANVAS.fullmatch(PurePosixPath(name).name) or MOODLE.fullmatch(name)
    return int(found["number"]) if found else 0


def _put(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: Path) -> Path:
    with archive.open(member) as file:
        data = file.read(LARGEST + 1)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make students, make collect")
    parser.add_argument("--course", type=Path, default=HERE, help="the folder of the course")
    commands = parser.add_subparsers(dest="command", required=True)
    students = commands.add_parser("students", help="import a class list")
    students.add_argument("list", type=Path)
    collected = commands.add_parser("collect", help="import a download of Canvas or Moodle")
    collected.add_argument("assignment")
    collected.add_argument("download", type=Path)
    options = parser.parse_args()
    try:
        with open_gradebook(options.course) as book:
            if options.command == "students":
                found = read_class(options.list)
                add_class(book, found)
                print(f"{len(found)} students.")
                return
            done, left = collect(book, options.download, options.assignment, options.course / "submitted")
        print(f"{len(done)} collected.", *(f"left out: {line}" for line in left), sep="\n")
    except (OSError, ValueError) as error:
        sys.exit(f"make: {error}")


if __name__ == "__main__":
    main()
