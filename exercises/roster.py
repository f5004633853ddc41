"""`make -C exercises students` and `… collect`: the class list, and what it has uploaded to Canvas or Moodle."""

from __future__ import annotations

import argparse
import csv
import re
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook

from exercises.course import assignments
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
CANVAS = re.compile(r"[^_/]+(?:_LATE)?_(?P<user>\d+)_(?P<number>\d{1,18})_(?P<file>.+\.ipynb)")
MOODLE = re.compile(r"(?P<name>[^_/]+)_(?P<number>\d{1,18})_assignsubmission_file_?/?(?P<file>.*\.ipynb)")
STUDENT_ID = re.compile(r"[\w.@+-]{1,100}")


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
    """Whether a line is about a person: Canvas adds lines about points and posting, and one for trying things out."""
    name = (row.get("Student") or "").strip() if "Student" in row else "a student"
    return any((value or "").strip() for value in row.values()) and name not in ("", "Points Possible", "Student, Test")


def _student(row: dict[str, str | None], columns: dict[str, str | None], where: str) -> Student:
    about = {name: (row.get(column) or "").strip() if column else "" for name, column in columns.items()}
    last, _, first = about.pop("name").partition(", ")
    about["last_name"] = about["last_name"] or last
    about["first_name"] = about["first_name"] or first
    if not STUDENT_ID.fullmatch(about["id"]) or about["id"].startswith("."):
        raise ValueError(f"{where}: expected an id of at most 100 letters, digits and . @ + - _, got {about['id']!r}")
    return Student(**about)


def add_class(book: Gradebook, students: list[Student]) -> None:
    """Put a class into the gradebook; those that are there already are brought up to date."""
    for one in students:
        about = {"first_name": one.first_name, "last_name": one.last_name, "email": one.email}
        book.update_or_create_student(one.id, **about, lms_user_id=one.lms_user_id or None)


def collect(book: Gradebook, download: Path, assignment: str, submitted: Path) -> tuple[list[str], list[str]]:
    """Put the notebooks of a downloaded archive where they will be graded; who has handed in, and what there is to say.

    Of several notebooks of one student those named after the assignment come before others, and the latest of them
    counts. Nothing is written outside ``submitted``.

    Raises:
        ValueError: the file is no zip archive.
    """
    try:
        zipfile.ZipFile(download).close()
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:  # none at all, cut short, its directory is damaged
        raise ValueError(f"download: expected a zip archive, got {download.name}: {error}") from None
    by_number = {str(one.lms_user_id): [one.id] for one in book.students if one.lms_user_id}
    by_name: dict[str, list[str]] = {}
    for one in book.students:
        by_name.setdefault(f"{one.first_name} {one.last_name}".strip(), []).append(one.id)
    found: dict[str, dict[str, bytes]] = {}
    notes = []
    with zipfile.ZipFile(download) as archive:
        for member in sorted(archive.infolist(), key=lambda member: _upload(member.filename, assignment)[1:]):
            if member.is_dir():
                continue
            whose = _upload(member.filename, assignment)[0]
            owners = by_number.get(whose) or by_name.get(whose) or []
            if len(owners) != 1:
                why = f"could be from {' or '.join(owners)}" if owners else "belongs to nobody in the class list"
                notes.append(f"{member.filename}: left out, {why}")
                continue
            try:
                found.setdefault(owners[0], {})[member.filename] = _read(archive, member)
            except (ValueError, RuntimeError, EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
                # too large, encrypted, damaged in one way or another
                notes.append(f"{member.filename}: left out, {error}")
    for student, files in found.items():
        (*others, (name, data)) = files.items()
        if others:
            notes.append(f"{student}: {name} counts, not {' or '.join(other for other, _ in others)}")
        place = submitted / student / assignment / f"{assignment}.ipynb"
        if place.exists() and place.read_bytes() != data:
            notes.append(f"{student}: another notebook was collected before; this one takes its place")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return sorted(found), notes


def _upload(name: str, assignment: str) -> tuple[str, bool, int]:
    """Whose upload a file of an archive is (Moodle's name of the person, Canvas's number), whether the student named it
    after the assignment, and its number: the later, the greater. A file's own name never says whose it is."""
    if found := MOODLE.fullmatch(name):
        return found["name"], assignment in found["file"], int(found["number"])
    if found := CANVAS.fullmatch(name):
        return found["user"], assignment in found["file"], int(found["number"])
    return "", False, 0


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.file_size > LARGEST:
        raise ValueError(f"larger than {LARGEST // 2**20} MiB")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # no other can be unpacked in part
        raise ValueError("packed in another way than by deflate")
    with archive.open(member) as file:
        return file.read(LARGEST + 1)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make -C exercises")
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
            known = assignments(options.course)
            if options.assignment not in known:
                raise ValueError(f"assignment: expected one of {', '.join(known)}, got {options.assignment!r}")
            done, notes = collect(book, options.download, options.assignment, options.course / "submitted")
        print(f"{len(done)} collected.", *notes, sep="\n")
    except (OSError, ValueError) as error:
        sys.exit(f"make: {error}")


if __name__ == "__main__":
    main()
