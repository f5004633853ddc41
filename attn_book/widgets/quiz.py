"""Questions that a reader answers, and commits to, before the answer shows."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from pathlib import Path
from typing import Any

import traitlets

from attn_book import plots
from attn_book.widgets.base import Joined, RefusedError, StaticWidget, read_json
from attn_core.contract import shown

_WIDTH = 92  # characters of a line in the picture


class Quiz(StaticWidget):
    """Questions with options, of which one is right: the reader chooses, commits, and only then sees which, and why.

    `questions` is a list of dicts `{"question": str, "options": [...]}`, each with two to six options
    `{"text": str, "right": bool, "why": str}`: exactly one is right, and `why` says what makes it so, or what is wrong
    with it. A part of a text between backticks is code; all else stands in the page as it is written. What the reader
    answers stays in the page.

    Raises: ValueError where `questions`, or what it is set to later, does not fit, naming the part that does not.
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
        """Give the quiz whose questions a JSON file holds. Raises: ValueError where they do not fit."""
        return cls(read_json(path))

    def __repr__(self) -> str:
        return f"Quiz(questions={len(self.questions)})"

    def describe(self) -> str:
        """Say what the picture shows: how many questions there are, and what they ask."""
        asked = " ".join(f"{k}. {_plain(entry['question'])}" for k, entry in enumerate(self.questions, 1))
        return f"A quiz, each of its questions ({len(self.questions)}) with options to choose from: {asked}"

    def picture(self) -> bytes:
        """Draw the questions and their options, not the answers, as a PNG."""
        from matplotlib.figure import Figure
        from PIL import Image

        lines = list(self._lines())
        with plots.style(), warnings.catch_warnings():
            # A script that the font lacks is drawn as boxes; the page itself shows it.
            warnings.filterwarnings("ignore", message="Glyph")
            figure = Figure(figsize=(7.6, 0.2 * len(lines) + 0.2), dpi=80)
            for k, (line, weight) in enumerate(lines):
                y = 1 - (k + 1) / (len(lines) + 1)
                figure.text(0.02, y, line, fontsize=9, fontweight=weight, parse_math=False)
            figure.savefig(data := io.BytesIO(), format="png", facecolor="white")
        few = Image.open(data).convert("L").quantize(8)
        few.save(less := io.BytesIO(), format="png", optimize=True)
        return less.getvalue()

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
    """A text as one that no page sets: without the backticks around code, and without control characters."""
    text = re.sub(r"`([^`]+)`", r"\1", text)
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _read_questions(questions: Any) -> list[dict[str, Any]]:
    if not isinstance(questions, list | tuple) or not questions:
        raise RefusedError(f"questions: expected a list, one question at least, got {shown(questions)}")
    return [_read_question(entry, f"questions[{k}]") for k, entry in enumerate(questions)]


def _read_question(entry: Any, name: str) -> dict[str, Any]:
    _check_keys(entry, ("question", "options"), name)
    _check_text(entry["question"], f"{name}.question")
    options = entry["options"]
    if not isinstance(options, list | tuple) or not 2 <= len(options) <= 6:
        raise RefusedError(f"{name}.options: expected a list of two to six options, got {shown(options)}")
    for k, option in enumerate(options):
        here = f"{name}.options[{k}]"
        _check_keys(option, ("text", "right", "why"), here)
        _check_text(option["text"], f"{here}.text")
        _check_text(option["why"], f"{here}.why")
        if not isinstance(option["right"], bool):
            raise RefusedError(f"{here}.right: expected True or False, got {shown(option['right'])}")
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
