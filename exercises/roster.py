"""`make -C exercises students` and `… collect`: the class list, and what it has uploaded to Canvas or Moodle."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import sys
import unicodedata
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook

from exercises.course import assignments
from exercises.gradebook import HERE, names_file, names_given, open_gradebook
from exercises.submission import LARGEST, NOTEBOOK, printable

# What a column may be called, in small letters: nbgrader, Canvas's gradebook export, Moodle's list of participants.
COLUMNS = {
    "id": ("id", "sis login id", "username", "anmeldename", "id number", "id-nummer", "matrikelnummer"),
    "lms_user_id": ("lms_user_id",),
    "first_name": ("first_name", "first name", "vorname"),
    "last_name": ("last_name", "last name", "surname", "nachname"),
    "name": ("student",),
    "email": ("email", "email address", "e-mail", "e-mail-adresse"),
}
# Canvas writes a name or a group's name, the person's number, the file's number and the file's own name.
CANVAS = re.compile(r"[^/]+?_(?P<numbers>\d{1,18}(?:_\d{1,18})+)_(?P<file>[^/]+)")
MOODLE = re.compile(r"(?P<name>[^_/]+)_(?P<number>\d{1,18})_assignsubmission_file_?/?(?P<file>.*)")
SYSTEM = re.compile(r"(^|/)(__MACOSX/|\.DS_Store$|Thumbs\.db$)")
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
    """Read a class list: nbgrader's columns, Canvas's or Moodle's, as any spreadsheet saves them as CSV.

    Raises:
        ValueError: it is no CSV, a column is missing, or a line has no usable id; the message names the line. Nothing
            is imported.
    """
    text = _text(path)
    first = text.split("\n", 1)[0]
    if first.startswith("sep="):  # Excel's own first line
        text = text.removeprefix(first).lstrip()
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=text.split("\n", 1)[0].count))
    try:
        given = {name.strip().lower(): name for name in rows.fieldnames or []}
        columns = {name: next((given[c] for c in known if c in given), None) for name, known in COLUMNS.items()}
        if "sis login id" in given:  # Canvas's ID is its own number
            columns |= {"id": given["sis login id"], "lms_user_id": given.get("id")}
        if not columns["id"] and not columns["email"]:
            wanted = "id, SIS Login ID, Username, ID number or Email address"
            raise ValueError(f"{path.name}: expected a column {wanted}, got {', '.join(given.values()) or 'none'}")
        found = [_student(row, columns, f"{path.name}, line {rows.line_num}") for row in rows if _is_student(row)]
    except csv.Error as error:
        raise ValueError(f"{path.name}, line {rows.line_num}: expected a table as CSV: {error}") from None
    twice = {one.id for one in found if sum(other.id == one.id for other in found) > 1}
    if twice:
        raise ValueError(f"{path.name}: expected each id once, got {', '.join(sorted(twice))} more than once")
    return found


def _text(path: Path) -> str:
    """A file's text, in one of the encodings in which spreadsheets save it."""
    data = path.read_bytes()
    if data.startswith((b"PK", b"\xd0\xcf\x11\xe0")):
        raise ValueError(f"{path.name}: expected a table as CSV, got a workbook; save it as CSV")
    wide = "utf-16-le" if data[1:2] == b"\0" else "utf-16"
    for encoding in (wide,) if b"\0" in data[:4] or data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding).lstrip("\ufeff").replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue
    raise ValueError(f"{path.name}: expected text as UTF-8, UTF-16 or Windows-1252, got none of them; save it as UTF-8")


def _is_student(row: dict[str, str | None]) -> bool:
    """Whether a line is about a person: Canvas adds lines about points and posting, and one for trying things out."""
    name = (row.get("Student") or "").strip() if "Student" in row else "a student"
    said = (value for value in row.values() if isinstance(value, str))  # a line that is too long has a list
    return any(value.strip() for value in said) and name not in ("", "Points Possible", "Student, Test")


def _student(row: dict[str, str | None], columns: dict[str, str | None], where: str) -> Student:
    about = {name: (row.get(column) or "").strip() if column else "" for name, column in columns.items()}
    last, _, first = about.pop("name").partition(", ")
    about["last_name"] = about["last_name"] or last
    about["first_name"] = about["first_name"] or first
    about["id"] = about["id"] or about["email"]
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
    counts. Nothing of it is written outside ``submitted``; beside that, the names that the platform gave are kept.

    Raises:
        ValueError: the file is no zip archive.
    """
    try:
        zipfile.ZipFile(download).close()
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:  # none at all, cut short, its directory is damaged
        raise ValueError(f"download: expected a zip archive, got {download.name}: {error}") from None
    known = _owners(book)
    found: dict[str, dict[str, bytes]] = {}
    notes = []
    with zipfile.ZipFile(download) as archive:
        members = {one.filename: one for one in archive.infolist() if not one.is_dir()}
        members = {name: one for name, one in members.items() if not SYSTEM.search(name)}
        top = os.path.commonprefix([name.split("/")[0] + "/" for name in members])
        inside = {name: name.removeprefix(top) for name in members}  # unpacked and packed again, in one folder
        if not top.endswith("/") or MOODLE.fullmatch(top) or not all(inside.values()):
            inside = {name: name for name in members}
        uploads = {name: _upload(inside[name], assignment, known) for name in members}
        for name in sorted(members, key=lambda name: uploads[name][1:]):
            owners = uploads[name][0]
            if not NOTEBOOK.fullmatch(name):
                notes.append(f"{name}: left out, not a notebook")
                continue
            if len(owners) != 1:
                why = f"could be from {' or '.join(owners)}" if owners else "belongs to nobody in the class list"
                notes.append(f"{name}: left out, {why}")
                continue
            try:
                found.setdefault(owners[0], {})[name] = _read(archive, members[name])
            except (ValueError, RuntimeError, EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
                # too large, encrypted, damaged in one way or another
                notes.append(f"{name}: left out, {error}")
    found = {student: files for student, files in found.items() if files}
    given = names_given(submitted.parent, assignment)
    for student, files in found.items():
        (*others, (name, data)) = files.items()
        if others:
            notes.append(f"{student}: {name} counts, not {' or '.join(other for other, _ in others)}")
        place = submitted / student / assignment / f"{assignment}.ipynb"
        if place.exists() and place.read_bytes() != data:
            notes.append(f"{student}: another notebook was collected before; this one takes its place")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        given[student] = _given(inside[name])
    if found:
        path = names_file(submitted.parent, assignment)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(given, ensure_ascii=False, indent=1), encoding="utf-8")
    return sorted(found), notes


def _given(name: str) -> tuple[str, str]:
    """The platform that named an upload, and what feedback to it must be called: Moodle's folder, or Canvas's file
    without its ending."""
    if found := MOODLE.fullmatch(name):
        return "moodle", f"{found['name']}_{found['number']}_assignsubmission_file_"
    return "canvas", name[: name.lower().rindex(".ipynb")]


def _owners(book: Gradebook) -> dict[str, list[str]]:
    """The ids of those whom a platform may call so: Canvas by a number, Moodle by the names in either order."""
    known: dict[str, list[str]] = {}
    for one in book.students:
        first, last = one.first_name or "", one.last_name or ""
        for name in {str(one.lms_user_id or ""), _name(f"{first} {last}"), _name(f"{last} {first}")} - {""}:
            known.setdefault(name, []).append(one.id)
    return known


def _name(name: str) -> str:
    """A name in one form: composed letters, single spaces."""
    return " ".join(unicodedata.normalize("NFC", name).replace("_", " ").replace(",", " ").split())


def _upload(name: str, assignment: str, known: dict[str, list[str]]) -> tuple[list[str], bool, int]:
    """Whose upload a file of an archive may be, whether the student named it after the assignment, and its number: the
    later, the greater. A file's own name never says whose it is."""
    if found := MOODLE.fullmatch(name):
        parts = _name(found["name"]).split("-")  # a group's name and a hyphen may come before
        owners = next((o for i in range(len(parts)) if (o := known.get("-".join(parts[i:]).strip()))), [])
        return owners, assignment in found["file"], int(found["number"])
    if found := CANVAS.fullmatch(name):
        numbers = found["numbers"].split("_")  # a group's name may end in a number
        at = 1 if len(numbers) > 2 and numbers[0] not in known and numbers[1] in known else 0
        return known.get(numbers[at], []), assignment in name, int(numbers[at + 1])
    return [], False, 0


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
        if options.command == "students":
            if not options.list.is_file():
                raise ValueError(f"CLASS: expected a class list, as CLASS=class.csv, got {str(options.list)!r}")
            listed = read_class(options.list)
            with open_gradebook(options.course) as book:
                add_class(book, listed)
            print(f"{len(listed)} students.")
            return
        known = assignments(options.course)
        if options.assignment not in known:
            raise ValueError(f"assignment: expected one of {', '.join(known)}, got {options.assignment!r}")
        if not options.download.is_file():
            raise ValueError(
                f"DOWNLOAD: expected an archive, as DOWNLOAD=submissions.zip, got {str(options.download)!r}"
            )
        with open_gradebook(options.course) as book:
            done, notes = collect(book, options.download, options.assignment, options.course / "submitted")
        print(f"{len(done)} collected.", *map(printable, notes), sep="\n")
        if not done:
            raise ValueError(f"{options.download.name}: nothing was collected")
    except (OSError, ValueError) as error:
        sys.exit(f"make: {printable(str(error))}")


if __name__ == "__main__":
    main()
