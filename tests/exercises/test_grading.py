"""Answers in words, and what happens where a submission cannot be graded."""

import json
import shutil

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell
from sqlalchemy.exc import OperationalError

from exercises.grade import grade_all, grade_apart
from exercises.gradebook import open_gradebook, record
from exercises.grading import Graded, grade
from tests.exercises.course import answered, cell_named, hand_in, released, solutions, with_cell

NAME = "01_pooling"


def written(course):
    cells = [cell.metadata.nbgrader for cell in released(course, NAME).cells if cell.cell_type == "markdown"]
    return [about.grade_id for about in cells if about.grade]


@pytest.fixture(scope="module")
def graded(course):
    first, *_ = written(course)
    copied, below, own = (released(course, NAME) for _ in range(3))
    place = copied.cells.index(cell_named(copied, first))
    copied.cells.insert(place + 1, nbformat.from_dict(json.loads(json.dumps(copied.cells[place]))))
    copied.cells[place + 1].source = "My answer."
    below.cells.insert(below.cells.index(cell_named(below, first)) + 1, new_markdown_cell("My answer, below."))
    own.cells.append(new_markdown_cell("   "))
    for student, notebook in {
        "copied": copied,
        "below": below,
        "blank": own,
        "nothing": released(course, NAME),
    }.items():
        hand_in(course, student, NAME, notebook)
    odd = with_cell(answered(course, NAME, solutions(course, NAME)), r"print('\ud800')")
    hand_in(course, "odd text", NAME, odd)
    (hand_in(course, "odd time", NAME, odd).parent / "timestamp.txt").write_text("yesterday")
    (hand_in(course, "in time", NAME, odd).parent / "timestamp.txt").write_text("2026-09-01 10:00:00 UTC")
    return {student: done for (_, student), done in grade_all(course, [], jobs=2).items()}


@pytest.mark.parametrize("student", ["copied", "below"])
def test_an_answer_in_words_is_read_wherever_it_stands(course, graded, student):
    assert graded[student].points[written(course)[0]] is None


@pytest.mark.parametrize("student", ["blank", "nothing"])
def test_no_answer_in_words_is_nothing_to_read(course, graded, student):
    assert all(graded[student].points[name] == 0 for name in written(course))


def test_text_that_no_file_can_hold_stops_nobody(course, graded):
    assert len(graded) == 7 and all(done.notebook for done in graded.values())
    assert len(list(course.glob("autograded/*/*/*.ipynb"))) == 7 and not list(course.glob("autograded/*/*/*.part"))


def test_borrowed_code_is_noted_and_earns_nothing_by_tests_where_it_is_refused(course, tmp_path):
    right = solutions(course, NAME)
    taken = f"from attn_core import attention as ready\n{right['attention']}"
    hand_in(tmp_path, "eve", NAME, answered(course, NAME, {**right, "attention": taken}))
    paths = [course / kind / NAME / f"{NAME}.ipynb" for kind in ("source", "release")]
    noted, refused = (grade(tmp_path / "submitted/eve" / NAME, *paths, 120, refuse=refuse) for refuse in (False, True))
    assert noted.notes == refused.notes == ["the code uses attn_core.attention, which the assignment does not"]
    assert noted.points["attention_hidden"] > 0 and set(refused.points.values()) == {None}


def test_a_locked_gradebook_loses_one_line_and_nothing_else(course, tmp_path, monkeypatch, capsys):
    def locked(book, name, student, *_):
        if student == "ada":
            raise OperationalError("", {}, Exception("database is locked"))

    for student in ("ada", "alan"):
        hand_in(tmp_path, student, NAME, released(course, NAME))
    for kind in ("source", "release"):
        shutil.copytree(course / kind, tmp_path / kind)
    monkeypatch.setattr("exercises.grade.record", locked)
    done = grade_all(tmp_path, [], jobs=1)
    assert done[NAME, "ada"].notebook is None and "database is locked" in done[NAME, "ada"].notes[-1]
    assert done[NAME, "alan"].notebook is not None and "NOT GRADED" in capsys.readouterr().out


def test_a_time_is_read_or_said_to_be_none(course, graded):
    assert graded["odd time"].notes == ["its timestamp.txt holds no time"] and graded["in time"].notes == []
    with open_gradebook(course) as book:
        times = {one: book.find_submission(NAME, one).timestamp for one in ("in time", "odd time")}
    assert times["in time"].isoformat() == "2026-09-01T10:00:00" and times["odd time"] is None


def test_what_could_not_be_graded_keeps_its_points_and_is_marked(course, graded):
    with open_gradebook(course) as book:
        before = book.find_submission(NAME, "odd text").score
        record(book, NAME, "odd text", Graded(notes=["why"]), None)
        record(book, NAME, "never graded", Graded(notes=["why"]), None)
        for student, score in (("odd text", before), ("never graded", 0)):
            assert book.find_submission(NAME, student).score == score
            grades = book.find_submission_notebook(NAME, NAME, student).grades
            assert all(grade.needs_manual_grade for grade in grades)
    assert before > 0


def test_a_grader_that_fails_says_so_and_gives_no_points(course, tmp_path):
    released_path = course / "release" / NAME / f"{NAME}.ipynb"
    done = grade_apart(tmp_path, tmp_path / "missing.ipynb", released_path, 8, False, 0)
    assert done.notebook is None and done.points == {} and "could not be graded: FileNotFoundError" in done.notes[0]
