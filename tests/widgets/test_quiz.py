import json
from copy import deepcopy

import pytest

from attn_book.widgets.quiz import Quiz

QUESTIONS = [
    {
        "question": "Which `scale` keeps the scores' variance at 1, whatever d is?",
        "options": [
            {"text": "d", "right": False, "why": "That is the variance, not its root."},
            {"text": "√d", "right": True, "why": "A sum of d products has variance d."},
            {"text": "d²", "right": False, "why": "Then the scores all but vanish."},
        ],
    },
    {
        "question": "What does a query get that may look at nothing?",
        "options": [
            {"text": "zeros", "right": True, "why": "There is nothing to say."},
            {"text": "the mean", "right": False, "why": "That would read what is hidden."},
        ],
    },
]


def questions(where=(), value=None):
    """The questions, what stands at `where` replaced."""
    given = deepcopy(QUESTIONS)
    if not where:
        return given
    *path, last = where
    inner = given
    for key in path:
        inner = inner[key]
    inner[last] = value
    return given


OPTION = {"text": "a", "right": False, "why": "b"}


@pytest.mark.parametrize(
    ("where", "value"),
    [
        *[((1,), "which?"), ((1,), {"question": "which?"}), ((0, "note"), "x"), ((1, "question"), "  ")],
        *[((1, "question"), None), ((0, "options"), {}), ((0, "options"), [{**OPTION, "right": True}])],
        *[((0, "options"), [{**OPTION, "right": True}, *[OPTION] * 6]), ((0, "options", 2), "d²")],
        *[((0, "options", 2, "text"), 3), ((0, "options", 2, "why"), ""), ((0, "options", 2, "right"), 1)],
        *[((0, "options", 2, "right"), True), ((1, "options", 0, "right"), False)],
    ],
)
def test_refuses_questions_that_do_not_fit(where, value):
    with pytest.raises(ValueError, match=rf"^questions\[{where[0]}\]\S*: expected"):
        Quiz(questions(where, value))


@pytest.mark.parametrize("count", [2, 6])
def test_takes_two_to_six_options(count):
    options = [{**OPTION, "right": k == 1} for k in range(count)]
    assert len(Quiz(questions((1, "options"), options)).questions[1]["options"]) == count


def test_questions_are_not_kept_but_copied():
    given = questions()
    widget = Quiz(tuple(given))
    given[0]["options"][1]["right"] = False
    assert widget.questions == QUESTIONS


def test_is_loaded_from_a_file(tmp_path):
    path = tmp_path / "page.json"
    path.write_text(json.dumps(QUESTIONS, ensure_ascii=False), encoding="utf-8")
    assert Quiz.load(path).questions == Quiz.load(str(path)).questions == QUESTIONS
    path.write_text(json.dumps(questions((1, "options", 0, "right"), False)), encoding="utf-8")
    with pytest.raises(ValueError, match=r"^questions\[1\]\.options: expected exactly one right option, got 0"):
        Quiz.load(path)


def test_description_asks_and_does_not_answer():
    assert Quiz(QUESTIONS).describe() == (
        "A quiz, each of its questions (2) with options to choose from: 1. Which scale keeps the scores' variance at "
        "1, whatever d is? 2. What does a query get that may look at nothing?"
    )


def test_picture_shows_questions_and_options_but_no_answer():
    plain = Quiz(QUESTIONS).picture()
    assert plain.startswith(b"\x89PNG") and len(plain) < 20_000
    shown = [questions((1, "question"), "How?"), questions((1, "options", 1, "text"), "noise"), QUESTIONS[:1]]
    assert len({plain, *(Quiz(one).picture() for one in shown)}) == 4
    told = questions((0, "options", 0, "why"), "Another reason.")
    told[0]["options"][0]["right"], told[0]["options"][1]["right"] = True, False
    assert Quiz(told).picture() == plain
