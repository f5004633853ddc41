"""The instructor's commands from end to end, as the Makefile calls them."""

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile

import nbformat
import pytest

from exercises.course import check_solutions, give_feedback, release
from exercises.course import main as course_main
from exercises.grade import grade_all
from exercises.grade import main as grade_main
from exercises.gradebook import open_gradebook
from tests.exercises.course import ROOT, SPY, answered, cell_named, hand_in, released, solutions, with_cell

NAME = "01_pooling"


def call(*words, apart=(), opened=(), **environment):
    """A command of the instructor's, as the Makefile calls it; what it said."""
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    about = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environment}
    command = [*apart, sys.executable, "-m", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=about, pass_fds=opened)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def run(monkeypatch, main, *words):
    """The same in this process: what it said as it ended."""
    monkeypatch.setattr("sys.argv", ["make", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return str(ended.value)


TOKEN, PLACE, HOST = "tokn-5e81d2", "kurs-77ab", "host-31fe"
THERE = ("--unshare-uts", "--hostname", HOST, "--dev-bind", "/", "/")
USERS = {
    "whoever it is": ("bwrap", *(("--cap-add", "ALL") if os.getuid() == 0 else ()), *THERE),
    "ordinary user": ("bwrap", "--unshare-user", "--uid", "1234", *THERE),
}
LIVE = (
    "Because the **softmax** saturates. <script>alert(1)</script> [a](javascript:alert(2)) ![b](http://192.0.2.1/b.png)"
    "\n\n[c]\n\n[c]: javascript:alert(3)\n\nhttp://192.0.2.1/b.png and www.192.example"
)
TELLS = "def attention(*args):\n    import traceback\n    raise RuntimeError(' '.join(traceback.format_stack()))"


def archive(path, members):
    with zipfile.ZipFile(path, "w") as file:
        for name, notebook in members.items():
            file.writestr(name, nbformat.writes(notebook))
    return path


def kit(made, home, user):
    """A copy of a course whose instructor has secrets, and how its commands are run. They are in the environment, in
    an open file at home and one in the course, and in the names of the machine and of a folder."""
    course = shutil.copytree(made, home / PLACE / "course")
    for key in (home / "key", course / "key"):
        key.write_text(TOKEN)
    about = {"apart": USERS[user], "opened": (os.open(home / "key", os.O_RDONLY),), "TOKEN": TOKEN, "HOME": str(home)}
    return course, lambda module, *words: call(f"exercises.{module}", "--course", course, *words, **about)


def spying(course):
    """A submission that looks everywhere and tells what it finds in an output and in an error."""
    return with_cell(answered(course, NAME, {"attention": TELLS}), SPY.format(TOKEN[::-1]))


@pytest.fixture(scope="module")
def returned(made_course, tmp_path_factory):
    """A course after its class was imported, collected, graded and given everything back, and what was said."""
    home = tmp_path_factory.mktemp("home")
    course, run_kit = kit(made_course, home, "whoever it is")
    listed = home / "class.csv"
    listed.write_text(
        "id,last_name,first_name,email,lms_user_id\nada,Lovelace,Ada,,\nalan,Turing,Alan,,102\n"
        "grace,Hopper,Grace,,\nspy,Spy,Sam,s@example.org,\n"
    )
    right = answered(course, NAME, solutions(course, NAME))
    cell_named(right, written(course)).source = LIVE
    moodle = {
        "Ada Lovelace_7_assignsubmission_file_/hers.ipynb": right,
        "Sam Spy_9_assignsubmission_file_/a.ipynb": spying(course),
    }
    canvas = {"turingalan_102_77_01_pooling.ipynb": released(course, NAME)}
    said = {"students": run_kit("roster", "students", listed)}
    for name, members in (("moodle", moodle), ("canvas", canvas)):
        said[name] = run_kit("roster", "collect", NAME, archive(home / f"{name}.zip", members))
    said["grade"] = run_kit("grade", "--jobs", "2")
    with open_gradebook(course) as book:  # a person reads the answer
        grade = book.find_grade(written(course), NAME, NAME, "ada")
        assert grade.needs_manual_grade
        grade.manual_score, grade.needs_manual_grade = 3, False
        book.db.commit()
    said["feedback"] = run_kit("course", "feedback")
    said["grades"] = run_kit("gradebook")
    return course, said


@pytest.fixture(scope="module")
def spied(made_course, tmp_path_factory):
    """The same of one submission, by an ordinary user."""
    course, run_kit = kit(made_course, tmp_path_factory.mktemp("home"), "ordinary user")
    hand_in(course, "spy", NAME, spying(course))
    return course, [run_kit("grade"), run_kit("course", "feedback"), run_kit("gradebook")]


def table(course, name):
    return list(csv.reader((course / name).read_text(encoding="utf-8").splitlines()))


def test_a_class_from_list_to_grades(returned):
    course, said = returned
    assert "4 students" in said["students"] and "2 collected" in said["moodle"] and "3 pages in" in said["feedback"]
    assert f"{NAME}  ada:" in said["grade"] and "2 to be read" in said["grade"] and "3 graded in" in said["grade"]
    assert f"1 submissions have answers that nobody has read:\n{NAME}  ada" in said["grades"]
    pages = {
        who: (course / "feedback" / who / NAME / f"{NAME}.html").read_text(encoding="utf-8") for who in ("ada", "alan")
    }
    live = '<script>alert|(href|src)="javascript|(href|src)="[^"]*192'
    assert "saturates" in pages["ada"] and not re.search(live, pages["ada"])
    assert "HIDDEN TESTS" not in pages["ada"] and "not yet" in pages["alan"] and "right, on" in pages["ada"]
    rows = {row[0]: row for row in table(course, "grades.csv")}
    hand_graded = sum(cell.metadata.nbgrader.points for cell in released(course, NAME).cells if by_hand(cell))
    assert float(rows["ada"][-2]) == float(rows["ada"][-1]) == 20 - hand_graded + 3
    assert float(rows["alan"][-2]) == 0 and rows["grace"][-2] == ""


def test_everything_goes_back_as_the_platforms_take_it(returned):
    course, _ = returned
    names = {
        kind: zipfile.ZipFile(course / "feedback" / f"{NAME}-{kind}.zip").namelist() for kind in ("moodle", "canvas")
    }
    assert names["moodle"] == [f"{who}_assignsubmission_file_/{NAME}.html" for who in ("Ada Lovelace_7", "Sam Spy_9")]
    assert names["canvas"] == ["turingalan_102_77_01_pooling.html"]
    head, ada, spy = table(course, f"grades-moodle-{NAME}.csv")
    assert {"Identifier", "Full name", "Grade", "Maximum grade", "Last modified (grade)"} <= set(head)
    ada, spy = (dict(zip(head, row, strict=True)) for row in (ada, spy))
    assert (ada["Identifier"], ada["Full name"], ada["Maximum grade"]) == ("Participant 7", "Ada Lovelace", "20.0")
    assert float(ada["Grade"]) > 0 == float(spy["Grade"]) and spy["Email address"] == "s@example.org"
    head, most, *_, alan = table(course, "grades-canvas.csv")
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", NAME]
    assert most == ["    Points Possible", "", "", "", "", "20.0"] and alan[:4] == ["Turing, Alan", "102", "", "alan"]


@pytest.mark.parametrize("how", ["returned", "spied"])
def test_nothing_of_the_instructor_s_reaches_a_submission_or_what_is_written_of_it(request, how):
    course, said = request.getfixturevalue(how)
    assert TOKEN not in str(said)
    found = {}
    for path in (one for one in course.rglob("*") if one.is_file() and one != course / "key"):
        found[path.relative_to(course).as_posix()] = path.read_bytes()
        if path.suffix == ".zip":
            archive = zipfile.ZipFile(path)
            found |= {f"{path.name}/{name}": archive.read(name) for name in archive.namelist()}
    told = {name: data for name, data in found.items() if re.match("feedback|autograded|grades|01_pooling-", name)}
    page = told[f"feedback/spy/{NAME}/{NAME}.html"].decode()
    assert "FOUND []" in page and "/grading/player.py" in page and "format_stack" in page
    assert len(told) == {"returned": 3 + 3 + 2 + 3 + 3, "spied": 1 + 1 + 2}[how]  # the last are tables
    assert not [name for name, data in found.items() if TOKEN.encode() in data]
    for secret in (PLACE, HOST, str(ROOT), "bwrap"):
        assert not [name for name, data in told.items() if secret.encode() in data], secret


def by_hand(cell):
    return cell.metadata.nbgrader.grade and cell.cell_type == "markdown"


def written(course):
    return next(cell.metadata.nbgrader.grade_id for cell in released(course, NAME).cells if by_hand(cell))


@pytest.fixture(scope="module")
def graded(course):
    """A course in which two students were graded."""
    words = answered(course, NAME, solutions(course, NAME))
    cell_named(words, written(course)).source = "An answer."
    hand_in(course, "ada", NAME, words)
    hand_in(course, "alan", NAME, released(course, NAME))
    grade_all(course, [], jobs=2)
    return course


def test_grading_again_keeps_what_a_person_gave(graded):
    with open_gradebook(graded) as book:
        book.find_grade(written(graded), NAME, NAME, "ada").manual_score = 2
        book.db.commit()
    assert [*grade_all(graded, [NAME], "ada", jobs=1)] == [(NAME, "ada")]  # one student alone
    with open_gradebook(graded) as book:
        grade = book.find_grade(written(graded), NAME, NAME, "ada")
        assert grade.manual_score == 2 and grade.needs_manual_grade


def test_a_changed_assignment_with_grades_is_refused_and_its_release_stays(graded, tmp_path, monkeypatch):
    course = shutil.copytree(graded, tmp_path / "course")
    path = course / "source" / NAME / f"{NAME}.ipynb"
    changed = nbformat.read(path, as_version=4)
    changed.cells = [one for one in changed.cells if not one.metadata.nbgrader.grade_id.endswith("_hidden")]
    nbformat.write(changed, path)
    before = (course / "release" / NAME / f"{NAME}.ipynb").read_bytes()
    with pytest.raises(ValueError, match="have been graded.*new name"):
        release(course, [NAME])
    assert (course / "release" / NAME / f"{NAME}.ipynb").read_bytes() == before


def test_a_page_that_cannot_be_made_is_named_and_costs_nobody_else_theirs(graded, tmp_path):
    course = shutil.copytree(graded, tmp_path / "course")
    (course / "autograded" / "alan" / NAME / f"{NAME}.ipynb").write_text("{")
    (failed,) = give_feedback(course, [NAME], seconds=600)
    assert failed.startswith(f"{NAME}  alan: nbgrader: ")
    assert [path.parts[-3] for path in course.glob("feedback/*/*/*.html")] == ["ada"]
    failed = give_feedback(course, [NAME], seconds=0.01)  # as a text would that takes without end
    assert failed == [f"{NAME}  {student}: it took longer than 0.01 s" for student in ("ada", "alan")]
    assert not list(course.glob("feedback/*/*/*.html"))


def test_with_nothing_handed_in_it_says_what_was_expected(made_course, monkeypatch):
    said = run(monkeypatch, grade_main, "--course", made_course)
    assert "nothing to grade. Expected submitted/STUDENT/ASSIGNMENT" in said
    assert "nothing has been graded" in run(monkeypatch, course_main, "--course", made_course, "feedback")


@pytest.mark.parametrize("main, words", [(grade_main, []), (course_main, ["feedback"])], ids=["grade", "feedback"])
def test_a_misspelt_assignment_is_refused(made_course, monkeypatch, main, words):
    said = run(monkeypatch, main, "--course", made_course, *words, "01_poling")
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


def test_ctrl_c_ends_grading_and_keeps_what_is_graded(made_course, tmp_path):
    course = shutil.copytree(made_course, tmp_path / "course")
    hand_in(course, "ada", NAME, released(course, NAME))
    hand_in(course, "bob", NAME, with_cell(released(course, NAME), "import time\ntime.sleep(10_000)"))
    command = [sys.executable, "-m", "exercises.grade", "--course", str(course), "--jobs", "1", "--seconds", "500"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert "ada" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 130 and "Stopped: 1 of 2 graded." in said and "Traceback" not in said
    with open_gradebook(course) as book:
        graded = {one.student_id for one in book.assignment_submissions(NAME)}
    assert graded == {"ada"}


def test_without_a_sandbox_nothing_is_graded(made_course, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "make: grading needs bubblewrap" in run(monkeypatch, grade_main, "--course", made_course)


def test_a_graded_notebook_is_valid_and_opens_anywhere(graded):
    for path in graded.glob("autograded/*/*/*.ipynb"):
        nbformat.validate(nbformat.read(path, as_version=4))
