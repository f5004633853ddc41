"""The frame of a check: is the answer right, and if not, which known mistake is it?"""

from __future__ import annotations

import copy
import secrets
import textwrap
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attn_book.check.difference import count, difference, unchanged

_OURS = str(Path(__file__).resolve().parents[1])


class NotYet(AssertionError):  # noqa: N818 (what it says to the reader)
    """What a check found. A notebook shows the sentence alone: the reader's mistake is not in our code."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@dataclass(frozen=True)
class Case:
    """One input: ``args`` for the answer, and what is special about it, to be read after "on".

    An ``edge`` is an input that an otherwise right answer may get wrong.
    """

    name: str
    args: tuple[Any, ...]
    edge: bool = False


@dataclass(frozen=True)
class Misconception:
    """A known wrong answer: what is done wrong, to be read after "This is what comes out when"; what follows from
    it; and where to read: a page of the book and a heading on it."""

    answer: Callable[..., Any]
    when: str
    so: str
    read: tuple[str, str]


class Inputs:
    """Draws fresh inputs; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Normal numbers."""
        return torch.randn(shape, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        """Numbers from 0 to 1."""
        return torch.rand(shape, generator=self.generator)

    def whole(self, first: int, last: int) -> int:
        """One whole number, both ends included."""
        return int(torch.randint(first, last + 1, (), generator=self.generator))

    def ids(self, size: int, *shape: int) -> Tensor:
        """Whole numbers below ``size``."""
        return torch.randint(size, shape, generator=self.generator)

    def mask(self, *shape: int) -> Tensor:
        """A boolean mask whose rows each have something to see and, if they can, something hidden."""
        raw = self.uniform(*shape)
        return ((raw > 0.4) | (raw == raw.amax(-1, keepdim=True))) & (
            (raw != raw.amin(-1, keepdim=True)) | (shape[-1] == 1)
        )


class Check:
    """The check of one exercise, to be called with the reader's answer.

    Args:
        name: how the exercise calls what is to be written.
        answer: a right answer.
        cases: draws inputs; called anew for each check, so that an answer cannot know them.
        misconceptions: known wrong answers, the likeliest first.
        hints: from a nudge to nearly the solution.
        use: how to get a result from an answer and a case's arguments; by default it is called with them.
        close: by how much a result may be off, as a share of the greatest entry (and of 1, if that is more).
    """

    def __init__(
        self,
        name: str,
        *,
        answer: Callable[..., Any],
        cases: Callable[[Inputs], Iterable[Case]],
        misconceptions: Iterable[Misconception],
        hints: Iterable[str],
        use: Callable[..., Any] | None = None,
        close: float = 1e-4,
    ) -> None:
        self.name, self.answer, self.cases, self.close = name, answer, cases, close
        self.misconceptions, self.hints = tuple(misconceptions), tuple(hints)
        self.use = use or (lambda attempt, *args: attempt(*args))
        self.hints_given = 0

    def __repr__(self) -> str:
        return f"check.{self.name}"

    def __call__(self, attempt: Callable[..., Any], *, seed: int | None = None) -> None:
        """Say that the answer is right.

        ``seed`` chooses the inputs; without it each call draws others.

        Raises:
            NotYet: the answer is wrong; the message says how.
            ValueError: ``attempt`` is not a function or a class.
        """
        self._judge(attempt, seed, edges=True)

    def usual(self, attempt: Callable[..., Any], *, seed: int | None = None) -> None:
        """The same without the edge cases: half of the points, where an exercise is graded.

        Raises:
            NotYet, ValueError: as when called.
        """
        self._judge(attempt, seed, edges=False)

    def _judge(self, attempt: Callable[..., Any], seed: int | None, *, edges: bool) -> None:
        if not callable(attempt):
            raise ValueError(
                f"attempt: expected what you wrote itself, check.{self.name}({self.name}), got {type(attempt).__name__}"
            )
        drawn = list(self.cases(Inputs(secrets.randbits(31) if seed is None else seed)))
        cases = [case for case in drawn if edges or not case.edge]
        wanted = [self.use(self.answer, *copy.deepcopy(case.args)) for case in cases]
        found = [_Outcome.of(self.use, attempt, case) for case in cases]
        wrong = [
            i
            for i, (outcome, right) in enumerate(zip(found, wanted, strict=True))
            if outcome.changed or outcome.error or difference(outcome.value, right, self.close)
        ]
        if wrong:
            raise NotYet(self._say(cases, found, wanted, wrong)) from None
        left = len(drawn) - len(cases)
        more = f"; the full check has {left} more, and harder" if left else ""
        print(f"{self.name}: right, on {count(len(cases), 'input')}{more}.")

    def _say(self, cases: list[Case], found: list[_Outcome], wanted: list[Any], wrong: list[int]) -> str:
        first = wrong[0]
        head = f"{self.name}: not yet, on {cases[first].name}."
        tail = f"For a hint: check.hint(check.{self.name})." if self.hints else ""
        known = self._recognise(cases, found, wrong)
        if found[first].changed:
            body = (
                f"It changes its argument {found[first].changed} in place; the caller's tensor is not yours to change."
            )
        elif known:
            page, heading = known.read
            body = f"This is what comes out when {known.when}. {known.so}"
            tail = f"To read: “{heading}” in {page}. {tail}"
        elif found[first].error:
            body = found[first].error
        else:
            body = difference(found[first].value, wanted[first], self.close) or ""
            if len(cases) > 1:
                tail = f"Right on {len(cases) - len(wrong)} of {count(len(cases), 'input')}. {tail}"
        return "\n".join(textwrap.fill(part.strip(), 88) for part in (head, body, tail) if part)

    def _recognise(self, cases: list[Case], found: list[_Outcome], wrong: list[int]) -> Misconception | None:
        """The known mistake that gives the same results everywhere; or else where the answer is wrong; or else, if a
        second mistake shows on the edges, where it is wrong on usual inputs."""
        usual = [i for i in wrong if not cases[i].edge]
        for places in (range(len(cases)), wrong, usual):
            for known in self.misconceptions if places else ():
                if all(found[i].same(_Outcome.of(self.use, known.answer, cases[i]), self.close) for i in places):
                    return known
        return None


@dataclass(frozen=True)
class _Outcome:
    """What an answer did on one case: gave a value, or failed with an error; and which argument it changed."""

    value: Any = None
    error: str = ""
    kind: type[BaseException] | None = None
    changed: int = 0  # counted from 1

    @classmethod
    def of(cls, use: Callable[..., Any], attempt: Callable[..., Any], case: Case) -> _Outcome:
        given = copy.deepcopy(case.args)
        try:
            value = use(attempt, *given)
        except Exception as error:  # whatever the reader's code raises is a finding, not a failure of ours
            return cls(error=_describe(error), kind=type(error))
        pairs = enumerate(zip(given, case.args, strict=True), 1)
        return cls(value, changed=next((i for i, (now, then) in pairs if not unchanged(now, then)), 0))

    def same(self, other: _Outcome, close: float) -> bool:
        if self.kind or other.kind:
            return self.kind is other.kind
        return not difference(self.value, other.value, close)


def _describe(error: BaseException) -> str:
    """The reader's error in one sentence, with the reader's own line, or with what was noted where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(_OURS) and "site-packages" not in f.filename]
    at = f" In line {theirs[-1].lineno}: {theirs[-1].line}" if theirs and theirs[-1].line else ""
    at = "".join(f" {note}" for note in getattr(error, "__notes__", ())) or at
    return f"It stops with {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}.{at}"


def hint(check: Check) -> None:
    """Print the next hint of a check; after the last one, begin again.

    Raises:
        ValueError: ``check`` is not one of the checks.
    """
    if not isinstance(check, Check):
        raise ValueError(f"check: expected one of the checks, like check.dot_product_attention, got {check!r}")
    number = check.hints_given % len(check.hints)
    check.hints_given += 1
    print(f"Hint {number + 1} of {len(check.hints)}: {check.hints[number]}")
