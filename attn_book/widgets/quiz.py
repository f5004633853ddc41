"""Questions that a reader answers, and commits to, before the answer is shown."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import traitlets

from attn_book import plots
from attn_book.widgets.base import Joined, RefusedError, StaticWidget, png_of, read_json
from attn_core.contract import shown

_WIDTH = 92  # characters of a line in the picture


class Quiz(StaticWidget):
    """Multiple-choice questions: the reader commits to an option and only then sees which one is right, and why.

    `questions` is a list of dicts `{"question": str, "options": [...]}`, each with two to six options
    `{"text": str, "right": bool, "why": str}`. Exactly one option is right, and `why` explains why an option is right
    or wrong. Text between backticks is shown as code, all other text as it is written. The reader's answers are not
    sent to the kernel.

    Raises:
        ValueError: if `questions`, or what it is set to later, does not fit. The message names the part.
    """

    _esm = Joined("page.js", "quiz.js")
    _css = Joined("page.css", "quiz.css")
    _said = ("questions",)

    questions = traitlets.TraitType[Any, Any](()).tag(sync=True, static=True)

    def __init__(self, questions: list[dict[str, Any]]) -> None:
        super().__init__(questions=_read_questions(questions))

    @traitlets.validate("questions")
    def _fits(self, proposal: Any) -> list[dict[str, Any]]:
        return _read_questions(proposal["value"])

    @classmethod
    def load(cls, path: str | Path) -> Quiz:
        """Return the quiz whose questions a JSON file holds.

        Raises:
            ValueError: if the file is not JSON, or the questions do not fit.
            OSError: if the file cannot be read.
        """
        return cls(read_json(path))

    def __repr__(self) -> str:
        return f"Quiz(questions={len(self.questions)})"

    def describe(self) -> str:
        """Describe the picture: how many questions there are, and what they ask."""
        asked = " ".join(f"{k}. {_plain(entry['question'])}" for k, entry in enumerate(self.questions, 1))
        return f"A quiz, each of its questions ({len(self.questions)}) with options to choose from: {asked}"

    def picture(self) -> bytes:
        """Draw the questions and their options, not the answers, as a PNG."""
        from matplotlib.figure import Figure

        lines = list(self._lines())
        with plots.style():
            figure = Figure(figsize=(7.6, 0.2 * len(lines) + 0.2), dpi=80)
            for k, (line, weight) in enumerate(lines):
                y = 1 - (k + 1) / (len(lines) + 1)
                figure.text(0.02, y, line, fontsize=9, fontweight=weight, parse_math=False)
            return png_of(figure, 8, thin_lines=False)

    def _lines(self) -> list[tuple[str, str]]:
        """The lines of the picture, each with the weight of its font."""
        lines = []
        for k, entry in enumerate(self.questions, 1):
            asked = f"{k}. {_plain(entry['question'])}"
            lines += [(line, "bold") for line in textwrap.wrap(asked, _WIDTH - 8, subsequent_indent="    ")]
            for option in entry["options"]:
                text = f"    ○ {_plain(option['text'])}"
                lines += [(line, "normal") for line in textwrap.wrap(text, _WIDTH, subsequent_indent="       ")]
            lines.append(("", "normal"))
        return lines[:-1]


def _plain(text: str) -> str:
    """A text as the picture shows it: without the backticks around code, and without control characters."""
    text = re.sub(r"`([^`]+)`", r"\1", text)
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _read_questions(questions: Any) -> list[dict[str, Any]]:
    if not isinstance(questions, list | tuple) or not questions:
        raise RefusedError(f"questions: expected a list of at least one question, got {shown(questions)}")
    return [_read_question(entry, f"questions[{k}]") for k, entry in enumerate(questions)]


def _read_question(entry: Any, name: str) -> dict[str, Any]:
    _check_keys(entry, ("question", "options"), name)
    _check_text(entry["question"], f"{name}.question")
    options = entry["options"]
    if not isinstance(options, list | tuple) or not 2 <= len(options) <= 6:
        raise RefusedError(f"{name}.options: expected a list of two to six options, got {shown(options)}")
    for k, option in enumerate(options):
        part = f"{name}.options[{k}]"
        _check_keys(option, ("text", "right", "why"), part)
        _check_text(option["text"], f"{part}.text")
        _check_text(option["why"], f"{part}.why")
        if not isinstance(option["right"], bool):
            raise RefusedError(f"{part}.right: expected True or False, got {shown(option['right'])}")
    right = sum(option["right"] for option in options)
    if right != 1:
        raise RefusedError(f"{name}.options: expected exactly one right option, got {right}")
    return {"question": entry["question"], "options": [dict(option) for option in options]}


def _check_keys(entry: Any, keys: tuple[str, ...], name: str) -> None:
    if not isinstance(entry, dict) or set(entry) != set(keys):
        raise RefusedError(f"{name}: expected a dict with the keys {', '.join(keys)}, got {shown(entry)}")


def _check_text(value: Any, name: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise RefusedError(f"{name}: expected a text, got {shown(value)}")
