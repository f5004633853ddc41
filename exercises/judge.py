"""Runs a notebook in the sandbox, and the tests outside of it.

The tests run here, where no student's code ever runs: what a student has defined is called through a stand-in, which
sends the arguments into the sandbox and gets the result back. So a test cannot be read, changed or stopped by what it
tests, and a patched ``torch.allclose`` is patched in the student's process alone.
"""

from __future__ import annotations

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

SECONDS = 40.0
"""What a cell may take; a call by a test may take a quarter of that."""
SLACK = 5.0
"""What the sandbox may take longer than its own clock says, before it is ended from outside."""


PRINTED, PICTURE = 20_000, 500_000
"""Characters kept of what a cell printed, and of a picture."""
SHOWN = 5_000_000
"""Characters kept of all cells together. All of these are kept here: a student's process can lift limits of its own."""
BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
ERRORS: tuple[type[Exception], ...] = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, IndexError, KeyError, MemoryError, NameError),
    *(NotImplementedError, OSError, OverflowError, RuntimeError, TypeError, ValueError, ZeroDivisionError),
)
"""A student's errors that are raised here as what they are; others become a RuntimeError."""


STOPS = "It stops with"
SECRET, SECRET_STOP = "A hidden test fails.", "In a hidden test your function stops with an error."


class StudentError(BaseException):
    """The student's process cannot answer any more. No Exception, so that no check takes it for a wrong answer."""


@dataclass(frozen=True)
class Shown:
    """What a cell of the student's printed and showed, and the error that ended it."""

    printed: str = ""
    pictures: list[str] = field(default_factory=list)
    error: str = ""


class Sandbox:
    """A student's process. After it has failed once, every call fails with the same reason."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self.cell_seconds, self.call_seconds = seconds, seconds / 4
        self.failed = ""
        requests, self._write = os.pipe()
        self._read, answers = os.pipe()
        with tempfile.TemporaryFile() as rules:
            sandbox.write_filter(rules)
            self._process = subprocess.Popen(
                sandbox.command(requests, answers, rules.fileno()),
                pass_fds=(requests, answers, rules.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
            )
        os.close(requests)
        os.close(answers)
        self._rest, self._shown = b"", 0
        self._answer(60.0)

    def close(self) -> None:
        """End the process, and all that it has started."""
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def run(self, source: str) -> Shown:
        """Run a cell.

        Raises:
            StudentError: the process has ended, or must be ended.
        """
        said = self._ask({"run": source, "seconds": self.cell_seconds}, self.cell_seconds)
        sent = said.get("pictures")
        pictures = (
            [p for p in sent if isinstance(p, str) and len(p) < PICTURE and BASE64.fullmatch(p)]
            if isinstance(sent, list)
            else []
        )
        shown = Shown(_text(said.get("printed")), pictures[:10], _text(said.get("error")))
        self._shown += len(shown.printed) + sum(map(len, shown.pictures))
        return shown if self._shown < SHOWN else Shown(error="Left out: this notebook shows more than is kept.")

    def call(self, what: str | int, method: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the student's, an object that it returned, or a method of that.

        Raises:
            StudentError: the process has ended, or must be ended.
            Exception: what the student's function raised, where it is a built-in error; else a RuntimeError.
        """
        packed = {"args": wire.pack(args, _number), "kwargs": wire.pack(kwargs, _number)}
        message = {"what": what, "method": method, **packed, "seconds": self.call_seconds}
        said = self._ask(message, self.call_seconds)
        if "error" in said:
            raise _error(said)
        self._change(wire.tensors([args, kwargs]), said.get("changed"))
        return wire.unpack(said.get("value"), self._object)

    def _object(self, number: int) -> StudentObject:
        return StudentObject(self, number)

    def _change(self, given: list[torch.Tensor], changed: Any) -> None:
        """Write into the test's tensors what the student's function wrote into its copies of them."""
        for place, packed in changed if isinstance(changed, list) else ():
            now = wire.unpack(packed, self._object)
            if isinstance(now, torch.Tensor) and now.shape == given[place].shape:
                given[place].copy_(now)

    def _ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        if self.failed:
            raise StudentError(self.failed)
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
def student_process(*, seconds: float = SECONDS) -> Iterator[Sandbox]:
    """A student's process, ended at the end whatever happens."""
    student = Sandbox(seconds=seconds)
    try:
        yield student
    finally:
        student.close()


def run_tests(tests: dict[str, tuple[str, str]], names: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Run test cells, given as their visible and their hidden lines: what each printed, and why it failed ("" if not).

    ``names`` are those that the notebook's locked cells have defined, and the stand-ins; each cell gets a copy. All
    visible lines run before any hidden ones: a function that keeps what hidden ones give it can show it to nobody.
    """
    spaces = {cell: dict(names) for cell in tests}
    verdicts = {}
    for cell, (visible, _) in tests.items():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            failed = _failure(visible, spaces[cell])
        verdicts[cell] = (printed.getvalue(), failed)
    for cell, (_, hidden) in tests.items():
        printed_before, failed = verdicts[cell]
        if not failed:
            with contextlib.redirect_stdout(io.StringIO()):
                verdicts[cell] = (printed_before, _failure(hidden, spaces[cell], secret=True))
    return verdicts


def _failure(source: str, names: dict[str, Any], *, secret: bool = False) -> str:
    try:
        exec(compile(source, "<test>", "exec"), names)  # the course's own code
    except StudentError as error:
        return _text(str(error))
    except Exception as error:
        if secret and getattr(error, "tells_values", True):
            # What the student's function returned or said may be what it was given.
            return SECRET_STOP if STOPS in str(error) else SECRET
        return _text(str(error) if isinstance(error, NotYet) else f"{type(error).__name__}: {error}")
    return ""


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
