"""The process that runs a student's notebook, inside the sandbox, and answers the grader's calls.

It is started as a script, with two file descriptors: requests come from the first, answers go to the second. It sees
no test, no right answer and no other student. Whatever it does, it can only answer wrongly or not at all.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import isclose  # by itself: what a notebook does to torch must not decide what the grader is told
from wire import from_line, pack, tensors, to_line, unpack

PRINTED = 20_000  # characters of output kept from a cell
PICTURES, PICTURE = 10, 500_000


class TooLongError(BaseException):
    """A cell or a call took longer than it may. No Exception, so that no retry catches it."""


def confine(memory: int, processes: int, user: int) -> None:
    """Limit this process and give up what rights it has."""
    for kind, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, processes)):
        resource.setrlimit(kind, (limit, limit))
    if os.getuid() == 0:  # graded by root: the limit on processes does not hold for root
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """Do some work; raise TooLongError in the midst of it when the time is over, and again if that was caught."""

    def stop(*_: Any) -> None:
        raise TooLongError(f"it took longer than {seconds:g} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Player:
    """The notebook's names, and the objects that the grader has met."""

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell

        self.shell = InteractiveShell.instance(history_load_length=0, colors="nocolor")
        # %matplotlib inline asks for a user interface, and pictures come without one.
        self.shell.enable_gui = lambda *_, **__: None  # type: ignore[method-assign]
        self.shell.showtraceback = lambda *_, **__: None  # type: ignore[method-assign]  # run says what was raised
        self.objects: list[Any] = []
        self.stood: dict[str, dict[str, Any]] = {}  # the notebook's names at each test; at "" at its end
        self.shown: dict[str, Any] = {}  # those of them that it has now

    def keep(self, value: Any) -> int:
        """The number by which the grader may ask for an object again."""
        self.objects.append(value)
        return len(self.objects) - 1

    def run(self, source: str, seconds: float) -> dict[str, Any]:
        """Run a cell; give what it printed and showed."""
        from IPython.utils.capture import capture_output

        with capture_output() as shown:
            result = within(seconds, lambda: self.shell.run_cell(source))
        pictures = [out.data["image/png"] for out in shown.outputs if "image/png" in (out.data or {})][:PICTURES]
        texts = [str(out.data["text/plain"]) for out in shown.outputs if "text/plain" in (out.data or {})]
        error = result.error_before_exec or result.error_in_exec
        return {
            "printed": "\n".join([shown.stdout, *texts]).strip()[:PRINTED],
            "pictures": [p if isinstance(p, str) else encode(p) for p in pictures if len(p) < PICTURE],
            "error": f"{type(error).__name__}: {error}"[:500] if error else "",
        }

    def mark(self, test: str) -> dict[str, Any]:
        """Remember the notebook's names as they stand at a test."""
        self.stood[test] = dict(self.shell.user_ns)
        return {}

    def _look(self, test: str, what: str | int) -> bool:
        """Give the notebook the names that it had at a test, or, if ``what`` was not defined there, at its end; whether
        the two differ in ``what``."""
        last = self.stood.setdefault("", dict(self.shell.user_ns))
        then = self.stood.get(test, last)
        names = last if isinstance(what, str) and what not in then else then
        if names is not self.shown:
            self.shown = names
            self.shell.user_ns.clear()
            self.shell.user_ns.update(names)
        return isinstance(what, str) and names.get(what) is not last.get(what)

    def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Call a name or an object, or one of its methods; give what it returned, and which tensors it changed."""
        what: str | int = message["what"]
        later = self._look(message["test"], what)
        if isinstance(what, str) and what not in self.shell.user_ns:
            return {"error": "NameError", "said": f"the notebook defines no {what}"}
        try:
            target = self.shell.user_ns[what] if isinstance(what, str) else self.objects[what]
            target = getattr(target, message["method"]) if message["method"] else target
            args, kwargs = (
                unpack(message[part], lambda number, _: self.objects[number]) for part in ("args", "kwargs")
            )
            before = [tensor.clone() for tensor in tensors([args, kwargs])]
            value = within(message["seconds"], lambda: target(*args, **kwargs))
            after = zip(before, tensors([args, kwargs]), strict=False)
            changed = {i: pack(now, self.keep) for i, (then, now) in enumerate(after) if not _same(then, now)}
            return {"value": pack(value, self.keep), "changed": list(changed.items()), "later": later}
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.line or "" for frame in frames if "ipython-input" in frame.filename]
            return {"error": type(error).__name__, "said": str(error)[:500], "line": (lines or [""])[-1][:200]}


def _same(then: torch.Tensor, now: torch.Tensor) -> bool:
    return then.shape == now.shape and bool(isclose(then, now, 0, 0, True).all())


def encode(png: bytes) -> str:
    """A picture as text."""
    import base64

    return base64.b64encode(png).decode()


def serve(requests: int, answers: int, memory: int, processes: int, user: int) -> None:
    """Answer requests until there are no more."""
    confine(memory, processes, user)
    player = Player()
    with os.fdopen(requests, "rb") as asked, os.fdopen(answers, "wb") as told:
        told.write(to_line({"value": "ready"}))
        told.flush()
        for line in asked:
            message = from_line(line)
            if "run" in message:
                answer = player.run(message["run"], message["seconds"])
            else:
                answer = player.mark(message["mark"]) if "mark" in message else player.call(message)
            told.write(to_line(answer))
            told.flush()


if __name__ == "__main__":
    serve(*(int(number) for number in sys.argv[1:]))
