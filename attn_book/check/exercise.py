"""The frame of a check: whether an answer is right and, if not, which known mistake it makes."""

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
    """What a check says about a wrong answer; a notebook shows the message without a traceback through our code."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@dataclass(frozen=True)
class Case:
    """One input: ``args`` for the answer, and a ``name`` that says what is special about it and is read after "on".

    An ``edge`` is an input that an otherwise right answer may get wrong.
    """

    name: str
    args: tuple[Any, ...]
    edge: bool = False


@dataclass(frozen=True)
class Misconception:
    """A known wrong ``answer``.

    ``when`` says what is done wrong, read after "This is what comes out when". ``so`` says why it is wrong, and
    ``read`` names a page of the book and a heading on it.
    """

    answer: Callable[..., Any]
    when: str
    so: str
    read: tuple[str, str]


class Inputs:
    """Draws fresh inputs; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Normally distributed numbers, of this shape."""
        return torch.randn(shape, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers from 0 to 1, of this shape."""
        return torch.rand(shape, generator=self.generator)

    def whole(self, first: int, last: int) -> int:
        """One integer from ``first`` to ``last``, both included."""
        return int(torch.randint(first, last + 1, (), generator=self.generator))

    def ids(self, size: int, *shape: int) -> Tensor:
        """Integers from 0 to ``size`` − 1, of this shape."""
        return torch.randint(size, shape, generator=self.generator)

    def mask(self, *shape: int) -> Tensor:
        """A boolean mask in which each row has a visible key and, if it has more than one key, a masked one."""
        raw = self.uniform(*shape)
        return ((raw > 0.4) | (raw == raw.amax(-1, keepdim=True))) & (
            (raw != raw.amin(-1, keepdim=True)) | (shape[-1] == 1)
        )


class Check:
    """The check of one exercise, to be called with the reader's answer.

    Args:
        name: the name of the check in ``attn_book.check``.
        function: the name of the function or class that the exercise asks for; by default ``name``.
        answer: a right answer.
        cases: draws inputs; called again for each check, so that an answer cannot know them.
        misconceptions: known wrong answers, the most likely first.
        hints: from a first idea to almost the solution.
        use: gets a result from an answer and a case's arguments; by default the answer is called with them.
        close: the tolerance, as a share of the greatest entry (and of 1, if that is larger).
    """

    def __init__(
        self,
        name: str,
        *,
        function: str = "",
        answer: Callable[..., Any],
        cases: Callable[[Inputs], Iterable[Case]],
        misconceptions: Iterable[Misconception],
        hints: Iterable[str],
        use: Callable[..., Any] | None = None,
        close: float = 1e-4,
    ) -> None:
        self.name, self.function = name, function or name
        self.answer, self.cases, self.close = answer, cases, close
        self.misconceptions, self.hints = tuple(misconceptions), tuple(hints)
        self.use = use or (lambda attempt, *args: attempt(*args))
        self.hints_given = 0

    def __repr__(self) -> str:
        return f"check.{self.name}"

    def __call__(self, attempt: Callable[..., Any], *, seed: int | None = None) -> None:
        """Print that the answer is right, or raise an error that explains what is wrong.

        ``seed`` determines the inputs; without it, each call draws others.

        Raises:
            NotYet: if the answer is wrong; the message says how.
            ValueError: if ``attempt`` is not a function or a class.
        """
        self._judge(attempt, seed, edges=True)

    def usual(self, attempt: Callable[..., Any], *, seed: int | None = None) -> None:
        """Check without the edge cases, which gives half of the points where an exercise is graded.

        Raises:
            NotYet: if the answer is wrong; the message says how.
            ValueError: if ``attempt`` is not a function or a class.
        """
        self._judge(attempt, seed, edges=False)

    def _judge(self, attempt: Callable[..., Any], seed: int | None, *, edges: bool) -> None:
        if not callable(attempt):
            call = f"check.{self.name}({self.function})"
            raise ValueError(f"attempt: expected a function or class, as in {call}, got {type(attempt).__name__}")
        drawn = list(self.cases(Inputs(secrets.randbits(31) if seed is None else seed)))
        cases = [case for case in drawn if edges or not case.edge]
        expected = [self.use(self.answer, *copy.deepcopy(case.args)) for case in cases]
        outcomes = [_Outcome.of(self.use, attempt, case) for case in cases]
        wrong = [
            i
            for i, (outcome, right) in enumerate(zip(outcomes, expected, strict=True))
            if outcome.changed or outcome.error or difference(outcome.value, right, self.close)
        ]
        if wrong:
            raise self._not_yet(cases, outcomes, expected, wrong) from None
        left = len(drawn) - len(cases)
        more = f"; the full check has {left} more, and harder" if left else ""
        print(f"{self.function}: right, on {count(len(cases), 'input')}{more}.")

    def _not_yet(self, cases: list[Case], outcomes: list[_Outcome], expected: list[Any], wrong: list[int]) -> NotYet:
        first = wrong[0]
        head = f"{self.function}: not yet, on {cases[first].name}."
        tail = f"For a hint: check.hint(check.{self.name})." if self.hints else ""
        known = self._recognise(cases, outcomes, wrong)
        if outcomes[first].changed:
            body = f"It changes its argument {outcomes[first].changed} in place; leave the caller's tensor as it is."
        elif known:
            page, heading = known.read
            body = f"This is what comes out when {known.when}. {known.so}"
            tail = f"To read: “{heading}” in {page}. {tail}"
        elif outcomes[first].error:
            body = outcomes[first].error
        else:
            body = difference(outcomes[first].value, expected[first], self.close) or ""
            if len(cases) > 1:
                tail = f"Right on {len(cases) - len(wrong)} of {count(len(cases), 'input')}. {tail}"
        return NotYet("\n".join(textwrap.fill(part.strip(), 88) for part in (head, body, tail) if part))

    def _recognise(self, cases: list[Case], outcomes: list[_Outcome], wrong: list[int]) -> Misconception | None:
        """The first known mistake that gives the same results as the answer.

        They are compared on all cases; if no mistake fits, on the wrong ones; and if none fits these, perhaps because
        of a second mistake on the edge cases, on the wrong ones that are not edge cases. A mistake that would have
        spoilt a case that is right, and no edge case, is not the reader's.
        """
        usual = [i for i, case in enumerate(cases) if not case.edge]
        right = [i for i in usual if i not in wrong]
        usually_wrong = [i for i in usual if i in wrong]
        for numbers in (range(len(cases)), wrong + right, usually_wrong and usually_wrong + right):
            for known in self.misconceptions if numbers else ():
                if all(outcomes[i].same(_Outcome.of(self.use, known.answer, cases[i]), self.close) for i in numbers):
                    return known
        return None


@dataclass(frozen=True)
class _Outcome:
    """What an answer did on one case: its value or its error, and the number of an argument that it changed."""

    value: Any = None
    error: str = ""
    kind: type[BaseException] | None = None
    changed: int = 0  # counted from 1

    @classmethod
    def of(cls, use: Callable[..., Any], attempt: Callable[..., Any], case: Case) -> _Outcome:
        given = copy.deepcopy(case.args)
        try:
            value = use(attempt, *given)
        except Exception as error:  # any error in the reader's code is a result of the check
            return cls(error=_describe(error), kind=type(error))
        pairs = enumerate(zip(given, case.args, strict=True), 1)
        return cls(value, changed=next((i for i, (now, then) in pairs if not unchanged(now, then)), 0))

    def same(self, other: _Outcome, close: float) -> bool:
        if self.kind or other.kind:
            return self.kind is other.kind
        return not difference(self.value, other.value, close)


def _describe(error: BaseException) -> str:
    """The reader's error in one sentence, with the reader's own line or the notes that the error carries."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith(_OURS) and "site-packages" not in f.filename]
    at = f" In line {theirs[-1].lineno}: {theirs[-1].line}" if theirs and theirs[-1].line else ""
    at = "".join(f" {note}" for note in getattr(error, "__notes__", ())) or at
    return f"It stops with {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}.{at}"


def hint(check: Check) -> None:
    """Print the next hint of a check; after the last one, the first one again.

    Raises:
        ValueError: if ``check`` is not one of the checks.
    """
    if not isinstance(check, Check):
        raise ValueError(f"check: expected one of the checks, like check.dot_product_attention, got {check!r}")
    number = check.hints_given % len(check.hints)
    check.hints_given += 1
    print(f"Hint {number + 1} of {len(check.hints)}: {check.hints[number]}")
