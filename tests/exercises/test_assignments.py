"""Every assignment: what a right, a wrong and a half-right submission earn, and what students receive."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
import yaml

from exercises.grade import grade_all
from exercises.submission import defined_names, is_answer, is_test, split_hidden
from tests.exercises.course import ASSIGNMENTS, ROOT, answered, hand_in, make_course, released, solutions, source

each = pytest.mark.parametrize("name", ASSIGNMENTS)


def answers(name, kind):
    """Our own wrong or half-right answers, by the name of the cell: tests/exercises/answers/NAME.txt holds them."""
    text = (ROOT / "tests" / "exercises" / "answers" / f"{name}.txt").read_text(encoding="utf-8")
    parts = re.split(r"^# (wrong|half): (\w+)\n", text, flags=re.M)
    return {parts[i + 1]: parts[i + 2].strip() for i in range(1, len(parts), 3) if parts[i] == kind}


def tasks(notebook):
    """The answers of code, in order."""
    return [cell.metadata.nbgrader.grade_id for cell in notebook.cells if is_answer(cell) and cell.cell_type == "code"]


def points(notebook, ending=""):
    """What the tests of a notebook give, by the name of the task."""
    found = {}
    for cell in notebook.cells:
        if is_test(cell) and cell.metadata.nbgrader.grade_id.endswith(ending):
            task = re.sub(r"_(usual|hidden)$", "", cell.metadata.nbgrader.grade_id)
            found[task] = found.get(task, 0) + cell.metadata.nbgrader.points
    return found


def half_right(course, name):
    """The first task solved, one solved but for its edges, the others untouched; and what that earns."""
    notebook = source(course, name)
    first = tasks(notebook)[0]
    nearly = {task: code for task, code in answers(name, "half").items() if task != first}
    (task, code), *_ = nearly.items()
    return {first: solutions(course, name)[first], task: code}, points(notebook)[first] + points(notebook, "_usual")[
        task
    ]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return make_course(tmp_path_factory.mktemp("course"), ASSIGNMENTS)


@pytest.fixture(scope="module")
def earned(course):
    """Points from the tests, by assignment and student."""
    for name in ASSIGNMENTS:
        hand_in(course, "right", name, answered(course, name, solutions(course, name)))
        hand_in(course, "wrong", name, answered(course, name, answers(name, "wrong")))
        hand_in(course, "half", name, answered(course, name, half_right(course, name)[0]))
    return {
        item: sum(value or 0 for value in done.points.values()) for item, done in grade_all(course, [], jobs=2).items()
    }


def test_every_assignment_has_its_chapter_and_every_part_has_assignments():
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    chapters = [{Path(one["file"]).name for one in part["chapters"]} for part in parts if part.get("numbered")]
    assert set(ASSIGNMENTS) <= set().union(*chapters) and all(names & set(ASSIGNMENTS) for names in chapters)


@each
def test_right_earns_all_wrong_nothing_and_half_its_part(course, earned, name):
    given = sum(points(source(course, name)).values())
    assert earned[name, "right"] == given > 0
    assert earned[name, "wrong"] == 0
    assert earned[name, "half"] == half_right(course, name)[1]
    assert 0 < earned[name, "half"] < given


@each
def test_each_assignment_has_twenty_points_some_of_them_for_words(course, name):
    graded = [cell for cell in source(course, name).cells if cell.metadata.nbgrader.grade]
    assert sum(cell.metadata.nbgrader.points for cell in graded) == 20
    assert any(cell.cell_type == "markdown" for cell in graded)
    assert len(tasks(source(course, name))) >= 3


@each
def test_each_task_has_a_visible_test_that_asks_a_check_and_a_hidden_one(course, name):
    notebook = source(course, name)
    tests = {cell.metadata.nbgrader.grade_id: split_hidden(cell.source) for cell in notebook.cells if is_test(cell)}
    for task in tasks(notebook):
        visible, hidden = tests[f"{task}_usual"][0], tests[f"{task}_hidden"][1]
        assert "check." in visible and hidden.strip(), task
    assert set(answers(name, "wrong")) == set(tasks(notebook)) and answers(name, "half")


@each
def test_students_receive_no_solution_no_hidden_test_and_no_rubric(course, name):
    text = nbformat.writes(released(course, name))
    assert not re.search("(BEGIN|END) (SOLUTION|HIDDEN TESTS|MARK SCHEME)", text)
    for cell in source(course, name).cells:
        if is_answer(cell):
            secret = cell.source.split("### BEGIN SOLUTION")[1].split("### END SOLUTION")[0]
            lines = [line.strip() for line in secret.splitlines() if len(line.strip()) > 30]
            assert not any(line in text for line in lines), cell.metadata.nbgrader.grade_id


@each
def test_on_colab_the_first_code_cell_fetches_the_book_as_the_chapters_do(course, name):
    def first(notebook):
        return next(cell.source for cell in notebook.cells if cell.cell_type == "code")

    assert first(released(course, name)) == first(nbformat.read(ROOT / "chapters" / f"{name}.ipynb", as_version=4))


@each
def test_what_is_to_be_defined_is_named_in_its_stub(course, name):
    stubs = [cell.source for cell in released(course, name).cells if is_answer(cell) and cell.cell_type == "code"]
    assert [node.name for stub in stubs for node in ast.parse(stub).body if hasattr(node, "name")] == defined_names(
        source(course, name)
    )
    assert all("raise NotImplementedError" in stub for stub in stubs)
