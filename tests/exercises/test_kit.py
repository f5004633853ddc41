"""The instructor's commands from end to end, as the Makefile calls them."""

import csv
import os
import re
import shutil
import signal
import subprocess
import sys

import nbformat
import pytest

from exercises.course import check_solutions, give_feedback, release
from exercises.grade import grade_all, submissions
from exercises.gradebook import open_gradebook
from tests.exercises.course import ROOT, answered, cell_named, hand_in, make_course, released, solutions, with_cell

NAME = "01_pooling"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return make_course(tmp_path_factory.mktemp("course"), [NAME])


def call(*command, code=0):
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_a_class_from_list_to_grades(course, tmp_path):
    (tmp_path / "class.csv").write_text(
        "id,last_name,first_name,email\nada,Lovelace,Ada,\nalan,Turing,Alan,\ngrace,Hopper,Grace,\n"
    )
    python = (sys.executable, "-m")
    assert "3 students" in call(
        *python, "exercises.roster", "--course", str(course), "students", str(tmp_path / "class.csv")
    )
    right = answered(course, NAME, solutions(course, NAME))
    cell_named(right, written(course)).source = (
        "Because the **softmax** saturates. <script>alert(1)</script> [a](javascript:alert(2)) ![b](http://192.0.2.1/b.png)"
        "\n\n[c]\n\n[c]: javascript:alert(3)\n\nhttp://192.0.2.1/b.png and www.192.example"
    )
    hand_in(course, "ada", NAME, right)
    hand_in(course, "alan", NAME, released(course, NAME))
    said = call(*python, "exercises.grade", "--course", str(course), "--jobs", "2")
    assert f"{NAME}  ada:" in said and "2 to be read" in said and "2 graded in" in said

    with open_gradebook(course) as book:  # a person reads the answer
        grade = book.find_grade(written(course), NAME, NAME, "ada")
        assert grade.needs_manual_grade
        grade.manual_score, grade.needs_manual_grade = 3, False
        book.db.commit()
    assert "2 pages in" in call(*python, "exercises.course", "--course", str(course), "feedback")
    pages = {
        who: (course / "feedback" / who / NAME / f"{NAME}.html").read_text(encoding="utf-8") for who in ("ada", "alan")
    }
    live = '<script>alert|(href|src)="javascript|(href|src)="[^"]*192'
    assert "saturates" in pages["ada"] and not re.search(live, pages["ada"])
    assert "HIDDEN TESTS" not in pages["ada"] and "not yet" in pages["alan"] and "right, on" in pages["ada"]

    said = call(*python, "exercises.gradebook", "--course", str(course))
    assert f"1 submissions have answers that nobody has read:\n{NAME}  ada" in said

    def lines(name):
        return (course / name).read_text(encoding="utf-8").splitlines()

    rows = {row["id"]: row for row in csv.DictReader(lines("grades.csv"))}
    most = float(next(csv.DictReader(lines("grades-canvas.csv")))[NAME])
    assert most == 20
    hand_graded = sum(cell.metadata.nbgrader.points for cell in released(course, NAME).cells if by_hand(cell))
    assert float(rows["ada"][NAME]) == float(rows["ada"]["total"]) == 20 - hand_graded + 3
    assert float(rows["alan"][NAME]) == 0 and rows["grace"][NAME] == ""
    canvas = list(csv.reader(lines("grades-canvas.csv")))
    assert canvas[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", NAME]
    assert canvas[1][0] == "    Points Possible" and canvas[3][:4] == ["Lovelace, Ada", "", "", "ada"]


def by_hand(cell):
    return cell.metadata.nbgrader.grade and cell.cell_type == "markdown"


def written(course):
    return next(cell.metadata.nbgrader.grade_id for cell in released(course, NAME).cells if by_hand(cell))


def test_grading_again_keeps_what_a_person_gave(course):
    hand_in(course, "eve", NAME, (right := answered(course, NAME, solutions(course, NAME))))
    cell_named(right, written(course)).source = "An answer."
    hand_in(course, "eve", NAME, right)
    python = (sys.executable, "-m", "exercises.grade", "--course", str(course), NAME)
    call(*python)
    with open_gradebook(course) as book:
        book.find_grade(written(course), NAME, NAME, "eve").manual_score = 2
        book.db.commit()
    call(*python)
    with open_gradebook(course) as book:
        grade = book.find_grade(written(course), NAME, NAME, "eve")
        assert grade.manual_score == 2 and grade.needs_manual_grade


def test_a_changed_assignment_with_grades_is_refused_and_its_release_stays(tmp_path):
    course = make_course(tmp_path, [NAME])
    hand_in(course, "eve", NAME, released(course, NAME))
    call(sys.executable, "-m", "exercises.grade", "--course", str(course))
    path = course / "source" / NAME / f"{NAME}.ipynb"
    changed = nbformat.read(path, as_version=4)
    changed.cells = [one for one in changed.cells if not one.metadata.nbgrader.grade_id.endswith("_hidden")]
    nbformat.write(changed, path)
    before = (course / "release" / NAME / f"{NAME}.ipynb").read_bytes()
    said = call(sys.executable, "-m", "exercises.course", "--course", str(course), "assignments", code=1)
    assert "have been graded" in said and "new name" in said
    assert (course / "release" / NAME / f"{NAME}.ipynb").read_bytes() == before


def test_a_page_that_cannot_be_made_is_named_and_costs_nobody_else_theirs(tmp_path):
    course = make_course(tmp_path / "course", [NAME])
    for student in ("ada", "alan"):
        hand_in(course, student, NAME, released(course, NAME))
    grade_all(course, [], jobs=2)
    assert give_feedback(course, [NAME]) == [] and len(list(course.glob("feedback/*/*/*.html"))) == 2
    (course / "autograded" / "alan" / NAME / f"{NAME}.ipynb").write_text("{")
    (failed,) = give_feedback(course, [NAME])
    assert failed.startswith(f"{NAME}  alan: nbgrader: ")
    assert [path.parts[-3] for path in course.glob("feedback/*/*/*.html")] == ["ada"]
    failed = give_feedback(course, [NAME], seconds=0.01)  # as a text would that takes without end
    assert failed == [f"{NAME}  {student}: it took longer than 0.01 s" for student in ("ada", "alan")]
    assert not list(course.glob("feedback/*/*/*.html"))


def test_with_nothing_handed_in_it_says_what_was_expected(tmp_path):
    empty = make_course(tmp_path, [NAME])
    said = call(sys.executable, "-m", "exercises.grade", "--course", str(empty), code=1)
    assert "nothing to grade. Expected submitted/STUDENT/ASSIGNMENT" in said


@pytest.mark.parametrize("module, words", [("grade", ["grade"]), ("course", ["course", "feedback"])])
def test_a_misspelt_assignment_is_refused(course, module, words):
    said = call(sys.executable, "-m", f"exercises.{module}", "--course", str(course), *words[1:], "01_poling", code=1)
    assert f"expected some of {NAME}, got 01_poling" in said


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("### BEGIN HIDDEN TESTS", "### BEGIN HIDEN TESTS", "attention_hidden: expected a marker"),
        ("### BEGIN HIDDEN TESTS", "# begin hidden tests", "attention_hidden: expected a marker"),
        ("### END HIDDEN TESTS", "", "attention_hidden: expected ### END HIDDEN TESTS"),
        ("### BEGIN SOLUTION", "", "attention: expected ### BEGIN SOLUTION, got ### END SOLUTION"),
        ("draw = torch", "draw == = torch", "attention_hidden: expected Python"),
    ],
)
def test_a_source_with_a_wrong_marker_or_test_releases_nothing(course, tmp_path, old, new, said):
    path = tmp_path / "source" / NAME / f"{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    shutil.copy(course / "nbgrader_config.py", tmp_path)
    changed = nbformat.read(course / "source" / NAME / f"{NAME}.ipynb", as_version=4)
    cell = cell_named(changed, said.split(":")[0])
    assert old in cell.source
    cell.source = cell.source.replace(old, new, 1)
    nbformat.write(changed, path)
    with pytest.raises(ValueError, match=f"^{NAME}, cell {re.escape(said)}"):
        release(tmp_path, [NAME])
    assert not (tmp_path / "release").exists()


def test_solutions_are_run_and_have_to_earn_all_points(course, tmp_path):
    check_solutions(course, NAME)
    shutil.copytree(course / "source", tmp_path / "source")
    path = tmp_path / "source" / NAME / f"{NAME}.ipynb"
    changed = nbformat.read(path, as_version=4)
    cell_named(changed, "attention").source += "\n    return 0 * q"
    cell_named(changed, "attention_hidden").source += "\nassert False"
    nbformat.write(changed, path)
    with pytest.raises(ValueError, match="attention_hidden: the solution fails"):
        check_solutions(tmp_path, NAME)


def test_ctrl_c_ends_grading_and_keeps_what_is_graded(course, tmp_path):
    for kind in ("source", "release"):
        shutil.copytree(course / kind, tmp_path / kind)
    shutil.copy(course / "gradebook.db", tmp_path)
    hand_in(tmp_path, "ada", NAME, released(course, NAME))
    hand_in(tmp_path, "bob", NAME, with_cell(released(course, NAME), "import time\ntime.sleep(10_000)"))
    command = [sys.executable, "-m", "exercises.grade", "--course", str(tmp_path), "--jobs", "1", "--seconds", "500"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert "ada" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 130 and "Stopped: 1 of 2 graded." in said and "Traceback" not in said
    with open_gradebook(tmp_path) as book:
        graded = {one.student_id for one in book.assignment_submissions(NAME)}
    assert "ada" in graded and "bob" not in graded  # others are in the book that was copied


def test_one_student_alone_is_graded_again(course, tmp_path):
    for student in ("ada", "bob"):
        (tmp_path / "submitted" / student / NAME).mkdir(parents=True)
    shutil.copytree(course / "release", tmp_path / "release")
    assert [*submissions(tmp_path, [], "bob")] == [(NAME, "bob")]


def test_without_a_sandbox_nothing_is_graded(course):
    command = (sys.executable, "-m", "exercises.grade", "--course", str(course))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PATH": "/nowhere"})
    assert done.returncode == 1 and "make: grading needs bubblewrap" in done.stderr


def test_a_graded_notebook_is_valid_and_opens_anywhere(course):
    for path in course.glob("autograded/*/*/*.ipynb"):
        nbformat.validate(nbformat.read(path, as_version=4))
