"""nbgrader's gradebook: who is in the class, and who has how many points."""

from __future__ import annotations

import argparse
import csv
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


def open_gradebook(course: Path = HERE) -> Gradebook:
    """The gradebook of a course's folder, made if there is none."""
    return Gradebook(f"sqlite:///{course / 'gradebook.db'}", course_id="attention")


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


def main() -> None:
    """`make -C exercises grades`: both tables."""
    parser = argparse.ArgumentParser(prog="make -C exercises grades")
    parser.add_argument("--course", type=Path, default=HERE, help="the folder of the course")
    course = parser.parse_args().course
    with open_gradebook(course) as book:
        write_csv(book, course / "grades.csv")
        write_canvas(book, course / "grades-canvas.csv")
        unread = [
            f"{one.name}  {printable(submission.student_id)}"
            for one in book.assignments
            for submission in one.submissions
            if submission.needs_manual_grade
        ]
    if unread:
        print(f"{len(unread)} submissions have answers that nobody has read:", *unread, sep="\n")
    print(f"{course / 'grades.csv'}\n{course / 'grades-canvas.csv'}")


if __name__ == "__main__":
    main()
