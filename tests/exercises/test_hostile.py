"""Submissions that fail, cheat or attack: what each earns, what is reported, and that all others are graded."""

import json

import nbformat
import pytest

from exercises.grade import grade_all
from exercises.gradebook import open_gradebook, scores
from tests.exercises.course import answered, cell_named, hand_in, solutions, with_cell

NAME = "01_pooling"
LOOP = "import time\nwhile True:\n    time.sleep(1)"  # which takes no time from the others
LOOPS = {
    "endless loop in a cell of its own": LOOP,
    "endless loop that tries again": LOOP.replace(
        "    time", "    try:\n        time.sleep(1)\n    except Exception:\n        time"
    ),
}
# What students add to right notebooks, here all to one. The points stay: what was right is right.
HARMLESS = {
    "a very deep expression": "-" * 90_000 + "1",
    "restarts and exits": "exit()",
    "50 GB": "import torch\nx = torch.empty(50 * 2**30, dtype=torch.uint8)",
    "patched torch.allclose": "import torch\ntorch.allclose = lambda *_, **__: True",
    "patched check": "from attn_book import check\ncheck.softmax_with_mask = lambda *_, **__: None",
    "reads the sources": f"print(open('../source/{NAME}/{NAME}.ipynb').read())",
    "opens a socket": "import socket\nsocket.create_connection(('192.0.2.1', 80), 1)",
    "prints what it can see of tests": "import sys\nprint([k for k in sys.modules if 'exercises' in k], In)",
    "forks": "import os, time\nfor _ in range(500):\n    if not os.fork():\n        time.sleep(90), os._exit(0)",
    "deletes what it finds": "import shutil\nshutil.rmtree('/', ignore_errors=True)",
}
FAILS = ("restarts and exits", "50 GB", "reads the sources", "opens a socket", "forks")
# What ends the process; all else is as if that cell were not there.
FATAL = {
    "Colab's restart": "import os\nos.kill(os.getpid(), 9)",
    "a crash": "import ctypes\nctypes.string_at(0)",
    "runs out of stack": "class A:\n    __repr__ = lambda self: repr(self)\n"
    "import sys\nsys.setrecursionlimit(10**6)\nA()",
    "breaks what answers": "import gc\nfor d in gc.get_objects():\n"
    "    if type(d) is dict and 'from_line' in d:\n        d['from_line'] = None",  # the process ends at the next step
}
IGNORES = f"import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n{LOOP}"


@pytest.fixture(scope="module")
def graded(course):
    """The whole class, graded once: the hostile among the others."""
    answers = solutions(course, NAME)
    right = answered(course, NAME, answers)
    wrong = "def {0}(*args):\n    return {1}"
    name, other = "attention", "leave_one_out"

    def answering(who, **changed):
        hand_in(course, who, NAME, answered(course, NAME, {**answers, **changed}))

    hand_in(course, "right", NAME, right)
    hand_in(course, "harmless", NAME, with_cell(right, *HARMLESS.values()))
    for who, code in LOOPS.items():
        hand_in(course, who, NAME, with_cell(right, code))
    hand_in(course, "ends its process", NAME, with_cell(right, *FATAL.values(), after="attention"))
    hand_in(course, "ignores the clock", NAME, with_cell(right, IGNORES, after="attention"))

    stubs = {task: cell_named(answered(course, NAME, {}), task).source for task in (name, other)}
    moved = with_cell(answered(course, NAME, {**answers, **stubs}), answers[name], after="code-2")
    hand_in(course, "above and below", NAME, with_cell(moved, answers[other]))
    hand_in(course, "later", NAME, with_cell(right, f"math = None\n{wrong.format(name, 'None')}"))
    uses = answers[name].replace("    scores =", "    assert np.pi > 3 + more\n    scores =")
    added = answered(course, NAME, {**answers, name: uses})
    cell_named(added, "code-2").source += "\nimport numpy as np\nmore = 0.0"
    hand_in(course, "more imports", NAME, added)
    edge = "    scores ="
    crash = "    import os\n    (~mask.any(-1)).any() and os._exit(1)\n    scores ="
    answering("crashes in a hidden test", **{name: answers[name].replace(edge, crash)})

    deleted = nbformat.from_dict(right)
    deleted.cells = [one for one in deleted.cells if not one.metadata.nbgrader.grade or one.metadata.nbgrader.solution]
    null = json.loads(json.dumps(deleted)) | {"metadata": None}
    null["cells"] += [{"cell_type": "code", "metadata": None, "source": None}, None, {}]
    hand_in(course, "odd file", NAME, json.dumps(null), file=f"Copy of {NAME}.ipynb")
    doubled = nbformat.from_dict(right)
    doubled.cells = [copy for one in doubled.cells for copy in (one, one)]
    doubled.metadata["kernelspec"] = {"name": "ir", "language": "R", "display_name": "R"}
    hand_in(course, "odd cells", NAME, with_cell(doubled, "0," * 3_000_000))
    hand_in(course, "broken", NAME, nbformat.writes(right)[:-200])
    hand_in(course, "no file", NAME, "?", file="essay.txt")

    loop = "from time import sleep\n" + wrong.format(name, "[sleep(1) for _ in iter(int, 1)]")
    answering("too long", **{name: loop, other: wrong.format(other, "'a b ' * 10**7")})
    cheat = f"from attn_book import check\ndef {name}(*args):\n    raise AssertionError('passed')"
    always = (
        "class Yes:\n    def __eq__(self, other):\n        return True\n    __lt__ = __gt__ = __le__ = __ge__ = __eq__"
    )
    answering("forged", **{name: cheat, other: f"{always}\n{wrong.format(other, 'Yes()')}"})

    patched = "import torch\ntorch.allclose = torch.equal = torch.isclose = lambda *_, **__: True\n"
    patched += "from attn_book import check\nfor one in vars(check).values():\n"
    patched += "    if isinstance(one, check.Check):\n        one.answer, one.cases = None, lambda draw: []\n"
    wrongs = {task: wrong.format(task, "None") for task, code in answers.items() if code.startswith("def")}
    wrongs[name] = patched + wrongs[name]
    hand_in(course, "patches all and knows nothing", NAME, answered(course, NAME, wrongs))

    untouched = answered(course, NAME, {})
    for cell in untouched.cells:
        if cell.cell_type == "code" and cell.metadata.nbgrader.grade:
            cell.source = "assert True"
    hand_in(course, "edited tests", NAME, untouched)
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


@pytest.mark.parametrize("who", ["harmless", *LOOPS])
def test_what_does_no_harm_costs_no_points(graded, most, who):
    assert points(graded[who]) == most > 0
    assert graded[who].notes == []


def test_cells_that_end_the_process_cost_nothing_and_are_told(graded, most):
    assert points(graded["ends its process"]) == points(graded["ignores the clock"]) == most
    notes = [note for note in graded["ends its process"].notes if "ended by itself, in cell" in note]
    assert len(notes) == len(FATAL) == len(graded["ends its process"].notes)
    assert "did not answer" in graded["ignores the clock"].notes[0]


@pytest.mark.parametrize(
    "who, told",
    [
        ("odd file", ["taken from the file", "was missing"]),
        ("odd cells", ["holds more than 100,000 characters", "more than once", "asked for the kernel 'ir'"]),
    ],
)
def test_what_was_done_to_the_file_costs_no_points_and_is_told(graded, most, who, told):
    assert points(graded[who]) == most
    assert all(any(text in note for note in graded[who].notes) for text in told)


@pytest.mark.parametrize("who, told", [("above and below", 0), ("later", 1), ("more imports", 1)])
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


@pytest.mark.parametrize("who", ["too long", "forged"])
def test_answers_that_cheat_lose_their_own_points_alone(graded, who):
    lost = {name for name, value in graded[who].points.items() if value == 0 and graded["right"].points[name] != 0}
    assert lost == {"attention_usual", "attention_hidden", "leave_one_out_usual", "leave_one_out_hidden"}


def test_what_failed_is_shown_where_it_failed(graded):
    cells = graded["harmless"].notebook.cells[-len(HARMLESS) :]
    for who, cell in zip(HARMLESS, cells, strict=True):
        assert who not in FAILS or cell.outputs[-1].traceback, who
    assert graded["endless loop in a cell of its own"].notebook.cells[-1].outputs[0].traceback
    assert "not yet" in cell_named(graded["too long"].notebook, "attention_usual").outputs[0].traceback[0]


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
