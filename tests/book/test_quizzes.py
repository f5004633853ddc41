"""The quizzes of the chapters: each page has one and shows it, and nothing but the content gives an answer away."""

import json
import re

import pytest

from attn_book.widgets import Quiz
from tests.book import notebooks as nb

QUIZZES = nb.ROOT / "chapters" / "quizzes"
PAGES = [path.stem for path in nb.NOTEBOOKS if re.match(r"\d\d_", path.name)]
each = pytest.mark.parametrize("page", PAGES)


def options(page):
    """The options of each question, as they are stored."""
    return [question["options"] for question in json.loads((QUIZZES / f"{page}.json").read_text(encoding="utf-8"))]


def test_every_page_has_a_quiz_and_every_quiz_a_page():
    assert {path.stem for path in QUIZZES.iterdir()} == set(PAGES)


@each
def test_a_quiz_is_valid_and_long_enough(page):
    assert len(Quiz.load(QUIZZES / f"{page}.json").questions) >= 4


@each
def test_a_section_that_a_reason_names_is_there(page):
    """In the reasons, only the names of sections stand between quotation marks with a capital at the beginning."""
    cells = nb.read(nb.ROOT / "chapters" / f"{page}.ipynb")["cells"]
    prose = "\n".join(nb.text(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    reasons = " ".join(option["why"] for choices in options(page) for option in choices)
    named = set(re.findall("“([A-Z][^”]*)”", reasons))
    assert named and named <= set(re.findall(r"^##+ (.*)$", prose, flags=re.M))


@each
def test_its_notebook_shows_it(page):
    cells = nb.code_cells(nb.read(nb.ROOT / "chapters" / f"{page}.ipynb"))
    (shown,) = [cell for cell in cells if f'Quiz.load("quizzes/{page}.json")' in nb.text(cell["source"])]
    assert "remove-input" in shown["metadata"]["tags"]
    (output,) = shown["outputs"]
    (state,) = re.findall(r'<script type="application/json">(.*?)</script>', nb.text(output["data"]["text/html"]))
    assert json.loads(state)["questions"] == Quiz.load(QUIZZES / f"{page}.json").questions, "make execute"
