"""nbgrader's gradebook: who is in the class, and who has how many points."""

from __future__ import annotations

import argparse
import csv
import json
import warnings
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook, MissingEntry
from sqlalchemy.exc import SAWarning

from exercises.grading import Graded
from exercises.submission import printable

HERE = Path(__file__).resolve().parent
MODIFIED = "Last modified (grade)"


def open_gradebook(course: Path = HERE) -> Gradebook:
    """The gradebook of a course's folder, made if there is none."""
    return Gradebook(f"sqlite:///{course / 'gradebook.db'}", course_id="attention")


def names_file(course: Path, assignment: str) -> Path:
    """Where the names are kept that a platform gave to what it collected."""
    return course / "uploads" / f"{assignment}.json"


def names_given(course: Path, assignment: str) -> dict[str, tuple[str, str]]:
    """Of each student whose upload is known, the platform and the name that feedback to it must have."""
    path = names_file(course, assignment)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def record(book: Gradebook, assignment: str, student: str, graded: Graded, handed_in: datetime | None) -> None:
    """Write a submission's points into the gradebook. Points that a person has given stay, marked to be looked at; one
    that could not be graded keeps what it has, and is all marked."""
    try:
        book.find_student(student)
    except MissingEntry:
        book.add_student(student)
    with warnings.catch_warnings():  # of nbgrader's own use of its database
        warnings.simplefilter("ignore", SAWarning)
        book.update_or_create_submission(assignment, student, timestamp=handed_in)
    for grade in book.find_submission_notebook(assignment, assignment, student).grades:
        if graded.notebook is None:
            grade.needs_manual_grade = True
            continue
        grade.auto_score = points = graded.points.get(grade.cell.name)
        grade.needs_manual_grade = points is None or grade.manual_score is not None
    book.db.commit()


def scores(book: Gradebook) -> Iterable[dict[str, Any]]:
    """A row for each student: who it is, and points for each assignment (None: not handed in)."""
    for student in sorted(book.students, key=lambda one: (one.last_name or "", one.id)):
        found = {one.assignment.name: one.score for one in book.student_submissions(student.id)}
        points = {assignment.name: found.get(assignment.name) for assignment in book.assignments}
        yield {"student": student, "points": points}


def _plain(text: str | None) -> str:
    """What a person wrote, so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text or ""


def write_csv(book: Gradebook, path: Path) -> None:
    """A table with a row for each student and a column for each assignment, the last one their sum."""
    names = [assignment.name for assignment in book.assignments]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["id", "last_name", "first_name", "email", *names, "total"])
        for row in scores(book):
            one, points = row["student"], row["points"]
            given = [points[name] for name in names]
            about = [_plain(text) for text in (one.last_name, one.first_name, one.email)]
            out.writerow([one.id, *about, *given, sum(p or 0 for p in given)])


def write_canvas(book: Gradebook, path: Path) -> None:
    """The same in the form that Canvas imports: its five columns, then one for each assignment, with a second row that
    says how many points there are."""
    assignments = [(one.name, one.max_score) for one in book.assignments]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *(name for name, _ in assignments)])
        out.writerow(["    Points Possible", "", "", "", "", *(most for _, most in assignments)])
        for row in scores(book):
            one = row["student"]
            name = _plain(", ".join(part for part in (one.last_name, one.first_name) if part))
            given = ["" if row["points"][name] is None else row["points"][name] for name, _ in assignments]
            out.writerow([name, one.lms_user_id or "", "", one.id, "", *given])


def write_moodle(book: Gradebook, course: Path) -> list[Path]:
    """A table for each assignment that Moodle has collected, in the form of its offline grading worksheet.

    Moodle finds a student by the number that it wrote into the name of the upload, and wants the three columns
    Identifier, Grade and Last modified (grade). A column of comments would empty those that are there.
    """
    written = []
    for assignment in book.assignments:
        given = {
            student: name
            for student, (where, name) in names_given(course, assignment.name).items()
            if where == "moodle"
        }
        if not given:
            continue
        path = course / f"grades-moodle-{assignment.name}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(["Identifier", "Full name", "Email address", "Status", "Grade", "Maximum grade", MODIFIED])
            for row in scores(book):
                one, points = row["student"], row["points"][assignment.name]
                if one.id in given and points is not None:
                    name, number, *_ = given[one.id].split("_")
                    about = [f"Participant {number}", _plain(name), _plain(one.email), "Submitted for grading"]
                    out.writerow([*about, points, assignment.max_score, "-"])
        written.append(path)
    return written


def main() -> None:
    """`make -C exercises grades`: all tables."""
    parser = argparse.ArgumentParser(prog="make -C exercises grades")
    parser.add_argument("--course", type=Path, default=HERE, help="the folder of the course")
    course = parser.parse_args().course
    with open_gradebook(course) as book:
        write_csv(book, course / "grades.csv")
        write_canvas(book, course / "grades-canvas.csv")
        tables = [course / "grades.csv", course / "grades-canvas.csv", *write_moodle(book, course)]
        unread = [
            f"{one.name}  {printable(submission.student_id)}"
            for one in book.assignments
            for submission in one.submissions
            if submission.needs_manual_grade
        ]
    if unread:
        print(f"{len(unread)} submissions have answers that nobody has read:", *unread, sep="\n")
    print(*tables, sep="\n")


if __name__ == "__main__":
    main()
