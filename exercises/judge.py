"""Runs a notebook in the sandbox, and the tests outside of it.

The tests run here, where no student's code ever runs: what a student has defined is called through a stand-in, which
sends the arguments into the sandbox and gets the result back. So a test cannot be read, changed or stopped by what it
tests, and a patched ``torch.allclose`` is patched in the student's process alone.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

from attn_book.check import NotYet
from exercises import sandbox, wire
from exercises.sandbox import NoSandboxError

SECONDS = 40.0
"""What a cell may take; a call by a test may take a quarter of that."""
SLACK, START = 5.0, 120.0
"""What the sandbox may take longer than its own clock says, before it is ended from outside; and to start."""


PRINTED, PICTURES, PICTURE = 20_000, 10, 500_000
"""Characters kept of what a cell printed; pictures kept of it, and characters of a picture."""
SHOWN = 5_000_000
"""Characters kept of all cells together. All of these are kept here: a student's process can lift limits of its own."""
BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
ERRORS: tuple[type[Exception], ...] = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, IndexError, KeyError, MemoryError, NameError),
    *(NotImplementedError, OSError, OverflowError, RuntimeError, TypeError, ValueError, ZeroDivisionError),
)
"""A student's errors that are raised here as what they are; others become a RuntimeError."""


SECRET = "A hidden test fails."


class StudentError(BaseException):
    """The student's process ended before it could answer. No Exception: no check shall take it for a wrong answer."""


@dataclass(frozen=True)
class Shown:
    """What a cell of the student's printed and showed, and the error that ended it."""

    printed: str = ""
    pictures: list[str] = field(default_factory=list)
    error: str = ""


class Sandbox:
    """A student's process. Where a cell or a call ends it, another takes its place, which has run all other cells.

    Without ``shut_in`` it is a process of its own and no more, for machines that allow no sandbox.
    """

    def __init__(self, *, seconds: float = SECONDS, shut_in: bool = True) -> None:
        self.cell_seconds, self.call_seconds, self.shut_in = seconds, seconds / 4, shut_in
        self.test = ""  # the test for which functions are called: they are taken as they stood there
        self.later: set[str] = set()  # those called that a cell after their test defines anew
        self._done: list[dict[str, Any]] = []  # what another process would have to do again
        self._shown = 0
        self._start()

    def _start(self) -> None:
        self.failed, self._rest = "", b""
        requests, self._write = os.pipe()
        self._read, answers = os.pipe()
        with tempfile.TemporaryFile() as rules:
            environment: dict[str, str] = {}
            if self.shut_in:
                sandbox.write_filter(rules)
                command = sandbox.command(requests, answers, rules.fileno())
            else:
                command, environment = sandbox.open_command(requests, answers)
            self._process = subprocess.Popen(
                command,
                pass_fds=(requests, answers, *((rules.fileno(),) if self.shut_in else ())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd="/tmp",
            )
        os.close(requests)
        os.close(answers)
        try:
            self._answer(START)
        except StudentError as error:
            self.close()
            raise NoSandboxError(f"the sandbox did not start: {error}") from None

    def close(self) -> None:
        """End the process, and all that it has started."""
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def mark(self, test: str) -> None:
        """Here the notebook comes to a test.

        Raises:
            StudentError: the process has ended.
        """
        self._ask({"mark": test}, self.cell_seconds)
        self._done.append({"mark": test})

    def run(self, source: str) -> Shown:
        """Run a cell.

        Raises:
            StudentError: it has ended the process, or the process must be ended.
        """
        step = {"run": source, "seconds": self.cell_seconds}
        said = self._ask(step, self.cell_seconds)
        self._ask(
            {"run": "pass", "seconds": self.cell_seconds}, self.cell_seconds
        )  # it may have broken what runs cells
        self._done.append(step)
        sent = said.get("pictures")
        pictures = (
            [p for p in sent if isinstance(p, str) and len(p) < PICTURE and BASE64.fullmatch(p)]
            if isinstance(sent, list)
            else []
        )
        shown = Shown(_text(said.get("printed")), pictures[:PICTURES], _text(said.get("error")))
        self._shown += len(shown.printed) + sum(map(len, shown.pictures))
        return shown if self._shown < SHOWN else Shown(error="Left out: this notebook shows more than is kept.")

    def call(self, what: str | int, method: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the student's, an object that it returned, or a method of that.

        Raises:
            StudentError: it has ended the process, or the process must be ended.
            Exception: what the student's function raised, where it is a built-in error; else a RuntimeError.
        """
        packed = {"args": wire.pack(args, _number), "kwargs": wire.pack(kwargs, _number)}
        message = {"what": what, "method": method, "test": self.test, **packed, "seconds": self.call_seconds}
        said = self._ask(message, self.call_seconds)
        if said.get("later"):
            self.later.add(str(what))
        if "error" in said:
            raise _error(said)
        self._change(wire.tensors([args, kwargs]), said.get("changed"))
        return wire.unpack(said.get("value"), self._object)

    def _object(self, number: int, kind: str) -> StudentObject:
        return type(kind[:50], (StudentObject,), {})(self, number)  # a message about it names its type

    def _change(self, given: list[torch.Tensor], changed: Any) -> None:
        """Write into the test's tensors what the student's function wrote into its copies of them."""
        for place, packed in changed if isinstance(changed, list) else ():
            now = wire.unpack(packed, self._object)
            if isinstance(now, torch.Tensor) and now.shape == given[place].shape:
                given[place].copy_(now)

    def _ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        while self.failed:
            self.close()
            self._start()
            for step in self._done:
                try:
                    self._exchange(step, self.cell_seconds)
                except StudentError:  # it goes on without this one, too
                    self._done.remove(step)
                    break
        return self._exchange(message, seconds)

    def _exchange(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        try:
            self._send(wire.to_line(message), seconds + SLACK)
        except BrokenPipeError:
            self._fail("the notebook's process ended by itself")
        return self._answer(seconds + SLACK)

    def _send(self, line: bytes, seconds: float) -> None:
        os.set_blocking(self._write, False)
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(self._write, selectors.EVENT_WRITE)
            while line:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    self._fail(f"the notebook's process did not listen for {seconds:g} s and was ended")
                line = line[os.write(self._write, line) :]

    def _answer(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(self._read, selectors.EVENT_READ)
            parts = [self._rest]
            size = len(self._rest)
            while b"\n" not in parts[-1]:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    self._fail(f"the notebook's process did not answer within {seconds:g} s and was ended")
                part = os.read(self._read, 2**16)
                if not part:
                    self._fail("the notebook's process ended by itself")
                parts.append(part)
                size += len(part)
                if size > wire.LARGEST:
                    self._fail("the notebook's process sent more than it may")
        line, self._rest = b"".join(parts).split(b"\n", 1)
        try:
            return wire.from_line(line)
        except ValueError:
            self._fail("the notebook's process sent what nobody asked for")

    def _fail(self, reason: str) -> NoReturn:
        self.failed = reason
        self._process.kill()
        raise StudentError(reason)


class StudentObject:
    """Stands for a function or class of the student's, or for an object that one of them returned."""

    def __init__(self, student: Sandbox, what: str | int) -> None:
        self._student, self._what = student, what

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, in the sandbox."""
        return self._student.call(self._what, None, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._student.call(self._what, name, args, kwargs)


@contextlib.contextmanager
def student_process(*, seconds: float = SECONDS, shut_in: bool = True) -> Iterator[Sandbox]:
    """A student's process, ended at the end whatever happens."""
    student = Sandbox(seconds=seconds, shut_in=shut_in)
    try:
        yield student
    finally:
        student.close()


def run_tests(
    tests: dict[str, tuple[str, str]], names: dict[str, Any], student: Sandbox | None = None
) -> dict[str, tuple[str, str]]:
    """Run test cells, given as their visible and their hidden lines: what each printed, and why it failed ("" if not).

    ``names`` are those that the notebook's locked cells have defined, and the stand-ins; each cell gets a copy. All
    visible lines run before any hidden ones: a function that keeps what hidden ones give it can show it to nobody. What
    is said of a failed hidden test is what its checks said before, of inputs of their own.
    """
    spaces = {cell: dict(names) for cell in tests}
    verdicts, public = {}, {}
    for cell, (visible, hidden) in tests.items():
        printed, failed, public[cell] = _tried(cell, visible, spaces[cell], student)
        if not failed:
            public[cell] = _tried(cell, _checks(hidden), dict(spaces[cell]), student)[2]
        verdicts[cell] = (printed, failed)
    for cell, (_, hidden) in tests.items():
        printed, failed = verdicts[cell]
        if not failed and _tried(cell, hidden, spaces[cell], student)[1]:
            verdicts[cell] = (printed, "\n".join(part for part in (SECRET, public[cell]) if part))
    return verdicts


def _checks(hidden: str) -> str:
    """The checks that hidden lines call, with new inputs in place of theirs, and what they import."""
    lines: list[ast.AST] = []
    for node in ast.walk(ast.parse(hidden)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("check."):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "seed"]
            lines.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            lines.append(node)
    return "\n".join(map(ast.unparse, lines))


def _tried(cell: str, source: str, names: dict[str, Any], student: Sandbox | None) -> tuple[str, str, str]:
    """Run lines of a test: what they printed, why they failed, and that once more if a check or the process says it."""
    if student:
        student.test = cell
    printed, failed, told = io.StringIO(), "", ""
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(source, "<test>", "exec"), names)  # the course's own code
        except (NotYet, StudentError) as error:
            failed = told = _text(str(error))
        except Exception as error:
            failed = _text(f"{type(error).__name__}: {error}")
    return printed.getvalue(), failed, told


def _error(said: dict[str, Any]) -> Exception:
    """The student's error, of its own kind if that is a common one."""
    name, text, line = (str(said.get(part) or "")[:500] for part in ("error", "said", "line"))
    error = next((kind(text) for kind in ERRORS if kind.__name__ == name), RuntimeError(f"{name}: {text}"))
    error.add_note(f"In the line: {line}" if line else "A test called it.")
    return error


def _text(value: Any) -> str:
    """What somebody sent, as text that can be written to a file."""
    return value[:PRINTED].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _number(value: Any) -> int:
    """An object's number in the sandbox."""
    if isinstance(value, StudentObject) and isinstance(value._what, int):
        return value._what
    raise ValueError(f"args: expected tensors, numbers, strings and containers of them, got {type(value).__name__}")
