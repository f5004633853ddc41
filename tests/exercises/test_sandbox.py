"""What a student's process can see and do, and how it ends."""

import errno
import os

import pyseccomp
import pytest
import torch

from attn_book import check
from exercises import judge
from exercises.judge import PRINTED, SECRET, SHOWN, StudentError, run_tests, student_process
from exercises.sandbox import CLONE_NEWUSER, NOBODIES, check_sandbox
from tests.exercises.course import KIT, ROOT

LAYER = """
import torch
class Layer(torch.nn.Linear):
    def twice(self, x, *, plus=0):
        return {"y": 2 * x + plus}
"""
LOOP = "while True:\n    pass"
WAIT = "import time\nwhile True:\n    time.sleep(1)"
LAST_DEEDS = {
    "exits": ("import os\nos._exit(0)", "ended by itself"),
    "ignores its clock": (f"import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n{WAIT}", "did not answer"),
    "kills itself": ("import os\nos.kill(os.getpid(), 9)", "ended by itself"),
    "writes to the grader": (
        "import os\nfor n in range(3, 256):\n    try:\n        os.write(n, b'?\\n')\n    except OSError:\n        pass",
        "nobody asked for",
    ),
    "sends without end": (
        "import os\nfor n in range(3, 256):\n    try:\n        while True:\n            os.write(n, bytes(2**16))\n"
        "    except OSError:\n        pass",
        "more than it may|did not answer|nobody asked for",
    ),
}


@pytest.fixture(scope="module")
def student():
    check_sandbox()
    with student_process(seconds=120) as process:
        yield process


def seen(student, code):
    shown = student.run(code)
    return f"{shown.printed}\n{shown.error}"


def test_a_cell_shows_what_it_printed_its_value_and_its_pictures(student):
    shown = student.run("print('a√'); 1 + 1")
    assert shown.printed == "a√\n\nOut[0]: 2" or shown.printed.split() == ["a√", "Out[0]:", "2"]
    code = "from matplotlib import pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    assert len(student.run(code).pictures) == 1
    assert student.run("1 / 0").error == "ZeroDivisionError: division by zero"
    assert student.run("def").error.startswith("SyntaxError")
    assert len(student.run("print('x' * 10**6)").printed) == 20_000


def test_it_has_the_book_s_package_and_none_of_the_course(student):
    assert "ok" in seen(student, "from attn_book import check\nfrom attn_core import attention\nprint('ok')")
    for path in (
        KIT,
        KIT / "source",
        KIT / "gradebook.db",
        ROOT / "tests",
        ROOT / ".git",
        "/home",
        "/root/.ssh",
        "/etc/passwd",
    ):
        assert "True" not in seen(student, f"from pathlib import Path\nprint(Path({str(path)!r}).exists())"), path


@pytest.mark.parametrize(
    "family, made", [("UNIX", True), ("INET", True), ("NETLINK", True), ("VSOCK", False), ("ALG", False)]
)
def test_there_are_sockets_of_three_families_alone(student, family, made):
    for call in ("socket", "socketpair"):
        said = seen(
            student,
            f"import socket\nsocket.{call}(socket.AF_{family}, socket.SOCK_RAW if {family == 'NETLINK'} else 1)",
        )
        assert ("not supported by protocol" in said) != made or (made and call == "socketpair"), said


def test_it_can_write_nowhere_but_in_its_own_scratch_space(student):
    for path in (ROOT / "attn_core" / "x", "/grading/x", "/usr/x", "/x", "/dev/x"):
        assert "Error" in seen(student, f"open({str(path)!r}, 'w')"), path
    for place in ("/tmp", "/dev/shm"):
        assert "OSError" in seen(
            student, f"import os\nos.posix_fallocate(open('{place}/x', 'wb').fileno(), 0, 300 * 2**20)"
        ), place
        student.run(f"import os\nos.remove('{place}/x')")
    assert seen(student, "open('/tmp/x', 'w').write('a')").strip()


def test_it_reaches_no_network_and_sees_no_other_process(student):
    assert "unreachable" in seen(student, "import socket; socket.create_connection(('192.0.2.1', 80), 1)")
    assert "name resolution" in seen(student, "import socket; socket.getaddrinfo('example.org', 80)")
    assert "['cpuinfo']" in seen(student, "import os\nprint(os.listdir('/proc'))")


def test_memory_and_processes_are_bounded(student):
    assert "can't allocate" in seen(student, "import torch\ntorch.empty(50 * 2**30, dtype=torch.uint8)")
    fork = (
        "import os, time\npids = []\ntry:\n    while len(pids) < 200:\n        pids.append(os.fork())\n"
        "        if not pids[-1]:\n            time.sleep(600)\nfinally:\n    [os.kill(pid, 9) for pid in pids if pid]"
    )
    assert "BlockingIOError" in seen(student, fork)


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("add_key", "b'user', b'name', b'value', 5, -3"),
        ("unshare", f"{CLONE_NEWUSER}"),
        ("clone", f"{CLONE_NEWUSER | 17}, 0, 0, 0, 0"),
        ("ptrace", "0, 0, 0, 0"),
        ("syslog", "3, 0, 0"),
        ("statmount", "0, 0, 0, 0"),
    ],
)
def test_the_kernel_refuses_keys_namespaces_and_looks_at_other_processes(student, name, arguments):
    number = {"statmount": 457}.get(name) or pyseccomp.resolve_syscall(pyseccomp.system_arch(), name)
    library = "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n"
    call = f"print(c.syscall({number}, {arguments}), ctypes.get_errno())"
    assert seen(student, library + call).split()[:2] == ["-1", f"{errno.EPERM}"]


def test_a_submission_stays_on_its_processor_as_a_user_of_its_own(student):
    assert "PermissionError" in seen(student, "import os\nos.sched_setaffinity(0, {0})")
    user = int(seen(student, "import os\nos.getuid()").split()[-1])
    assert user == (1000 if os.getuid() else NOBODIES + os.getpid())


def test_an_endless_loop_is_stopped_and_what_came_before_is_still_there(monkeypatch):
    monkeypatch.setattr(judge, "SLACK", 300.0)  # however busy the machine
    with student_process() as student:
        student.run("def double(x):\n    return 2 * x")
        monkeypatch.setattr(student, "cell_seconds", 1)
        for loop in (
            LOOP,
            "while True:\n    try:\n        while True:\n            pass\n    except Exception:\n        pass",
        ):
            assert "took longer than 1 s" in student.run(loop).error
        assert student.call("double", None, (2,), {}) == 4


def test_calls_carry_values_objects_and_errors(student):
    student.run(LAYER)
    layer = student.call("Layer", None, (2, 2), {})
    layer.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    assert torch.equal(layer(torch.ones(1, 2)), torch.ones(1, 2))
    assert layer.twice(3, plus=1) == {"y": 7}
    with pytest.raises(TypeError, match="unexpected keyword") as caught:
        layer.twice(3, minus=1)
    student.run("def fails(x):\n    return x[9]")
    with pytest.raises(IndexError) as caught:
        student.call("fails", None, ([1],), {})
    assert caught.value.__notes__ == ["In the line: return x[9]"]
    with pytest.raises(RuntimeError, match="Odd: what"):
        student.run("class Odd(Exception):\n    pass\ndef odd():\n    raise Odd('what')")
        student.call("odd", None, (), {})
    with pytest.raises(NameError, match="the notebook defines no never_defined") as caught:
        student.call("never_defined", None, (), {})
    assert caught.value.__notes__ == ["A test called it."]
    with pytest.raises(ValueError, match="args: expected tensors"):
        student.call("double", None, (object(),), {})


def test_what_a_function_changes_in_its_arguments_is_changed_in_the_test_s(student):
    student.run("def grows(x, more):\n    more['y'][0].mul_(3)\n    return x.add_(1)")
    x, y = torch.zeros(2), torch.ones(3)
    assert torch.equal(student.call("grows", None, (x, {"y": [y]}), {}), torch.ones(2))
    assert torch.equal(x, torch.ones(2)) and torch.equal(y, torch.full((3,), 3.0))


def test_what_is_kept_of_a_notebook_is_bounded_outside_of_it():
    lift = "import gc\nfor d in gc.get_objects():\n    if type(d) is dict and 'PRINTED' in d: d['PRINTED'] = 10**9"
    with student_process() as student:
        student.run(lift)
        assert len(student.run("print('x' * 10**7)").printed) == PRINTED
        kept = [student.run("print('x' * 20_000)") for _ in range(SHOWN // PRINTED + 3)]
        assert "more than is kept" in kept[-1].error and not kept[-1].printed


@pytest.mark.parametrize("code, said", LAST_DEEDS.values(), ids=LAST_DEEDS)
def test_a_cell_that_ends_the_process_is_left_out_of_the_next_which_has_run_all_others(code, said):
    with student_process() as student:
        student.run("x = 3")
        student.mark("test")
        student.run("x = 4\ndef f(y):\n    return x + y")
        with pytest.raises(StudentError, match=said), pytest.MonkeyPatch.context() as patch:
            patch.setattr(student, "cell_seconds", 5)
            student.run(code)
            student.run("1")
        assert student.run("print(x)").printed == "4"
        assert student.call("f", None, (1,), {}) == 5


def test_a_name_is_called_as_it_stood_at_the_test_or_else_as_it_is_at_the_end():
    with student_process() as student:
        student.run("factor = 2\ndef times(x):\n    return factor * x")
        student.mark("times_test")
        student.run("factor = 9\ndef times(x):\n    return None\ndef plus(x):\n    return x + factor")
        student.test = "times_test"
        assert [student.call(name, None, (3,), {}) for name in ("times", "plus", "times")] == [6, 12, 6]
        assert student.later == {"times"}


def test_nothing_is_left_running():
    with student_process() as student:
        student.run("import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1234)")
        process = student._process
    assert process.poll() is not None
    with pytest.raises(OSError):
        open(f"/proc/{process.pid}/status")  # noqa: SIM115


def run_test(visible, hidden, names):
    return run_tests({"one": (visible, hidden)}, names)["one"]


def test_a_test_is_told_apart_from_a_hidden_one():
    assert run_test("print('seen')", "print('not seen')", {}) == ("seen\n", "")
    assert run_test("assert False, 'why'", "1 / 0", {}) == ("", "AssertionError: why")
    assert run_test("print('seen')", "secret = 41\nassert secret == 42, f'{secret}'", {}) == ("seen\n", SECRET)
    ask = "from attn_book import check\ncheck.dot_product_attention({}, seed=0)"
    assert "It stops with TypeError" in run_test("", ask.format("len"), {})[1]
    known = run_test("", ask.format("check.dot_product_attention.misconceptions[0].answer"), {})[1]
    assert known.startswith(SECRET) and "This is what comes out when" in known


def test_what_is_said_of_a_hidden_test_does_not_depend_on_what_it_gives():
    """The answer makes one known mistake on the hidden inputs, and another on all others."""
    known = [one.answer for one in check.dot_product_attention.misconceptions[:2]]
    hidden = [case.args[0] for case in check.dot_product_attention.cases(check.Inputs(5))]

    def answer(q, *others):
        return known[any(torch.equal(q, one) for one in hidden)](q, *others)

    _, said = run_test("", "check.dot_product_attention(answer, seed=5)", {"check": check, "answer": answer})
    assert check.dot_product_attention.misconceptions[0].when.split()[0] in said.split("comes out when")[1]
    assert (
        run_test("", "check.dot_product_attention(answer, seed=5)", {"check": check, "answer": check_right(hidden)})[1]
        == SECRET
    )


def check_right(hidden):
    right = check.dot_product_attention.answer
    return lambda q, *others: None if any(torch.equal(q, one) for one in hidden) else right(q, *others)


def test_what_a_hidden_test_gives_is_shown_to_nobody():
    """Neither what the function returns of it, nor, kept for later, by the visible lines of the next test."""
    kept = []
    names = {"answer": lambda x: kept.append(x) or x, "kept": kept}
    hidden = "from attn_book import check\nassert answer(41) == 42, answer(41)\ncheck.dot_product_attention(answer)"
    tests = {"first": ("", hidden), "second": ("print(kept)", "")}
    found = run_tests(tests, names)
    assert found["second"] == ("[]\n", "") and found["first"][1].startswith(SECRET) and "41" not in found["first"][1]
    assert kept == [41, 41]


def test_what_honest_notebooks_do_costs_nothing(student):
    assert seen(student, "%matplotlib inline\nprint('on')") == "on\n"
    assert seen(student, "import torch\nprint(torch.compile(lambda x: x + 1)(torch.ones(())).item())") == "2.0\n"
