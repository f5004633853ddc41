"""Submissions that fail, cheat or attack: what each earns, what is reported, and that all others are graded."""

import json

import nbformat
import pytest

from exercises.grade import grade_all
from exercises.gradebook import open_gradebook, scores
from tests.exercises.course import answered, cell_named, hand_in, make_course, solutions, with_cell

NAME = "01_pooling"
LOOP = "import time\nwhile True:\n    time.sleep(1)"  # which takes no time from the others
# What a student adds to a right notebook. The points stay: what was right is right.
HARMLESS = {
    "endless loop in a cell of its own": LOOP,
    "endless loop that tries again": LOOP.replace(
        "    time", "    try:\n        time.sleep(1)\n    except Exception:\n        time"
    ),
    "a very deep expression": "-" * 90_000 + "1",
    "restarts and exits": "exit()",
    "50 GB": "import torch\nx = torch.empty(50 * 2**30, dtype=torch.uint8)",
    "patched torch.allclose": "import torch\ntorch.allclose = lambda *_, **__: True",
    "patched check": "from attn_book import check\ncheck.softmax_with_mask = lambda *_, **__: None",
    "reads the sources": f"print(open('../source/{NAME}/{NAME}.ipynb').read())",
    "opens a socket": "import socket\nsocket.create_connection(('192.0.2.1', 80), 1)",
    "forks": "import os, time\nfor _ in range(500):\n    if not os.fork():\n        time.sleep(9)\n        os._exit(0)",
    "deletes what it finds": "import shutil\nshutil.rmtree('/', ignore_errors=True)",
    "prints what it can see of tests": "import sys\nprint([k for k in sys.modules if 'exercises' in k], In)",
}
# What ends the process, and what is said in the notes. All else is as if that cell were not there.
FATAL = {
    "os._exit": ("import os\nos._exit(0)", "ended by itself"),
    "Colab's restart": ("import os\nos.kill(os.getpid(), 9)", "ended by itself"),
    "a crash": ("import ctypes\nctypes.string_at(0)", "ended by itself"),
    "runs out of stack": (
        "class A:\n    __repr__ = lambda self: repr(self)\nimport sys\nsys.setrecursionlimit(10**6)\nA()",
        "ended by itself",
    ),
    "ignores the clock": (f"import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n{LOOP}", "did not answer"),
}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return make_course(tmp_path_factory.mktemp("course"), [NAME])


@pytest.fixture(scope="module")
def graded(course):
    """The whole class, graded once: the hostile among the others."""
    right = answered(course, NAME, solutions(course, NAME))
    wrong = "def {0}(*args):\n    return {1}"
    first = next(cell for cell in right.cells if cell.metadata.get("nbgrader", {}).get("solution"))
    name = first.metadata.nbgrader.grade_id
    hand_in(course, "right", NAME, right)
    for who, code in HARMLESS.items():
        hand_in(course, who, NAME, with_cell(right, code))
    for who, (code, _) in FATAL.items():
        hand_in(course, who, NAME, with_cell(right, code, after="attention"))
    hand_in(course, "too long a cell", NAME, with_cell(right, "0," * 3_000_000))
    long = f"def {name}(*args):\n    return 'a b ' * 10**7"
    hand_in(course, "too long a string", NAME, answered(course, NAME, {**solutions(course, NAME), name: long}))
    answers = solutions(course, NAME)
    stub = cell_named(answered(course, NAME, {}), name).source
    hand_in(
        course, "above", NAME, with_cell(answered(course, NAME, {**answers, name: stub}), answers[name], after="code-2")
    )
    hand_in(course, "below", NAME, with_cell(answered(course, NAME, {**answers, name: stub}), answers[name]))
    hand_in(course, "later", NAME, with_cell(right, f"math = None\n{wrong.format(name, 'None')}"))
    uses = answers[name].replace("    scores =", "    assert np.pi > 3 + more\n    scores =")
    added = answered(course, NAME, {**answers, name: uses})
    cell_named(added, "code-2").source += "\nimport numpy as np\nmore = 0.0"
    hand_in(course, "more imports", NAME, added)
    null = json.loads(json.dumps(right)) | {"metadata": None}
    null["cells"] += [{"cell_type": "code", "metadata": None, "source": None}, None, {}]
    hand_in(course, "null", NAME, json.dumps(null))
    edge = answers[name].replace(
        "    scores =", "    import os\n    (~mask.any(-1)).any() and os._exit(1)\n    scores ="
    )
    hand_in(course, "crashes in a hidden test", NAME, answered(course, NAME, {**answers, name: edge}))
    hand_in(course, "copy", NAME, right, file=f"Copy of {NAME}.ipynb")
    hand_in(course, "broken", NAME, nbformat.writes(right)[:-200])
    hand_in(course, "no file", NAME, "?", file="essay.txt")

    loop = "from time import sleep\n" + wrong.format(name, "[sleep(1) for _ in iter(int, 1)]")
    hand_in(course, "loop in an answer", NAME, answered(course, NAME, {**solutions(course, NAME), name: loop}))
    cheat = f"from attn_book import check\ndef {name}(*args):\n    raise AssertionError('passed')"
    hand_in(course, "raises on purpose", NAME, answered(course, NAME, {**solutions(course, NAME), name: cheat}))
    always = (
        "class Yes:\n    def __eq__(self, other):\n        return True\n    __lt__ = __gt__ = __le__ = __ge__ = __eq__"
    )
    yes = f"{always}\ndef {name}(*args):\n    return Yes()"
    hand_in(course, "equal to everything", NAME, answered(course, NAME, {**solutions(course, NAME), name: yes}))

    patched = "import torch\ntorch.allclose = torch.equal = torch.isclose = lambda *_, **__: True\n"
    patched += "from attn_book import check\nfor one in vars(check).values():\n"
    patched += "    if isinstance(one, check.Check):\n        one.answer, one.cases = None, lambda draw: []\n"
    wrongs = {
        task: wrong.format(task, "None") for task, code in solutions(course, NAME).items() if code.startswith("def")
    }
    wrongs[name] = patched + wrongs[name]
    hand_in(course, "patches all and knows nothing", NAME, answered(course, NAME, wrongs))

    deleted = nbformat.from_dict(right)
    deleted.cells = [one for one in deleted.cells if not one.metadata.nbgrader.grade or one.metadata.nbgrader.solution]
    hand_in(course, "deleted tests", NAME, deleted)
    doubled = nbformat.from_dict(right)
    doubled.cells = [copy for one in doubled.cells for copy in (one, one)]
    hand_in(course, "duplicated cells", NAME, doubled)
    untouched = answered(course, NAME, {})
    for cell in untouched.cells:
        if cell.cell_type == "code" and cell.metadata.nbgrader.grade:
            cell.source = "assert True"
    hand_in(course, "edited tests", NAME, untouched)
    kernel = nbformat.from_dict(right)
    kernel.metadata["kernelspec"] = {"name": "ir", "language": "R", "display_name": "R"}
    hand_in(course, "wrong kernel", NAME, kernel)
    return {student: done for (_, student), done in grade_all(course, [], jobs=6, seconds=40).items()}


@pytest.fixture(scope="module")
def most(course, graded):
    """What the tests of the assignment give in all."""
    return sum(points or 0 for points in graded["right"].points.values())


def points(done):
    return sum(points or 0 for points in done.points.values())


def test_the_whole_class_is_graded_whoever_else_is_in_it(course, graded):
    assert len(graded) == len(list((course / "submitted").iterdir()))
    assert all(done.notebook is not None for done in graded.values())
    with open_gradebook(course) as book:
        assert {row["student"].id for row in scores(book)} == set(graded)
        assert all(row["points"][NAME] == points(graded[row["student"].id]) for row in scores(book))


@pytest.mark.parametrize("who", HARMLESS)
def test_what_does_no_harm_costs_no_points(graded, most, who):
    assert points(graded[who]) == most > 0
    assert graded[who].notes == []


@pytest.mark.parametrize("who", FATAL)
def test_a_cell_that_ends_the_process_costs_nothing_and_is_told(graded, most, who):
    assert points(graded[who]) == most
    assert any(FATAL[who][1] in note for note in graded[who].notes)


@pytest.mark.parametrize("who", ["too long a cell", "copy", "deleted tests", "duplicated cells", "wrong kernel"])
def test_what_was_done_to_the_file_costs_no_points_and_is_told(graded, most, who):
    assert points(graded[who]) == most
    told = {
        "too long a cell": "holds more than 100,000 characters",
        "copy": "taken from the file",
        "deleted tests": "was missing",
        "duplicated cells": "more than once",
        "wrong kernel": "asked for the kernel 'ir'",
    }
    assert any(told[who] in note for note in graded[who].notes)


@pytest.mark.parametrize("who, told", [("above", 0), ("below", 0), ("later", 1), ("more imports", 1), ("null", 0)])
def test_an_answer_counts_as_it_stood_at_its_test_wherever_it_was_written(graded, most, who, told):
    assert points(graded[who]) == most and len(graded[who].notes) == told


def test_a_crash_in_a_hidden_test_costs_that_test_alone(graded, most):
    assert points(graded["crashes in a hidden test"]) == most - graded["right"].points["attention_hidden"]


def test_patched_tools_do_not_help_a_wrong_answer(graded):
    assert points(graded["patches all and knows nothing"]) == 0
    shown = nbformat.writes(graded["patches all and knows nothing"].notebook)
    assert "It returns None" in shown


def test_edited_tests_give_nothing(graded):
    assert points(graded["edited tests"]) == 0
    assert any("was edited; the original was used" in note for note in graded["edited tests"].notes)


@pytest.mark.parametrize(
    "who, told", [("broken", "could not be read as a notebook"), ("no file", "no notebook was handed in")]
)
def test_what_cannot_be_read_earns_nothing_and_is_told(graded, who, told):
    assert points(graded[who]) == 0 and any(told in note for note in graded[who].notes)


@pytest.mark.parametrize("who", ["loop in an answer", "raises on purpose", "equal to everything", "too long a string"])
def test_an_answer_that_cheats_loses_its_own_points_alone(graded, most, who):
    assert 0 < points(graded[who]) < most
    lost = [name for name, value in graded[who].points.items() if value == 0 and graded["right"].points[name] != 0]
    assert len(lost) == 2  # the usual and the hidden tests of that one answer


def test_what_failed_is_shown_where_it_failed(graded):
    for who in ("50 GB", "opens a socket", "reads the sources", "endless loop in a cell of its own"):
        last = graded[who].notebook.cells[-1]
        (output,) = last.outputs
        assert output.output_type == "error" and output.traceback, who
    shown = "\n".join(graded["loop in an answer"].notebook.cells[i].outputs[0].get("traceback", [""])[0]
                      for i, cell in enumerate(graded["loop in an answer"].notebook.cells)
                      if cell.get("outputs") and cell.metadata.get("nbgrader", {}).get("grade"))  # fmt: skip
    assert "not yet" in shown


def test_no_hidden_test_is_in_what_a_student_gets_back(course, graded):
    source = nbformat.read(course / "source" / NAME / f"{NAME}.ipynb", as_version=4)
    hidden = [
        line.strip()
        for cell in source.cells
        if "### BEGIN HIDDEN TESTS" in cell.source
        for line in cell.source.split("### BEGIN HIDDEN TESTS")[1].splitlines()
        if len(line.strip()) > 20 and not line.strip().startswith("#")
    ]
    assert hidden
    for who, done in graded.items():
        text = nbformat.writes(done.notebook)
        assert not any(line in text for line in hidden), who
        assert "HIDDEN TESTS" not in text


def test_a_seen_answer_of_words_is_left_to_a_person(graded, course):
    right = graded["right"]
    written = [name for name, value in right.points.items() if value is None]
    assert written and all(cell_named(right.notebook, name).cell_type == "markdown" for name in written)
    assert all(graded["edited tests"].points[name] == 0 for name in written)
