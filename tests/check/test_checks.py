"""Every check: its answer passes, each known mistake is recognised, and what is said can be read in the book."""

import json
import re
from pathlib import Path

import pytest

from attn_book import check
from attn_book.check.exercise import Check, NotYet

BOOK = Path(__file__).parents[2]
CHECKS = [value for value in vars(check).values() if isinstance(value, Check)]
MISTAKES = [(one, known) for one in CHECKS for known in one.misconceptions]
SEEDS = range(5)


def named(value):
    return value.name if isinstance(value, Check) else value.when[:40]


def headings(page):
    cells = json.loads((BOOK / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return [re.sub(r"\$|\\", "", line) for line in re.findall(r"^#+ (.+?)(?: \{#.*)?$", text, re.M)]


@pytest.mark.parametrize("one", CHECKS, ids=named)
def test_the_right_answer_passes_on_any_inputs(one, capsys):
    for seed in SEEDS:
        one(one.answer, seed=seed)
        one.usual(one.answer, seed=seed)
    one(one.answer)
    assert "right, on" in capsys.readouterr().out


@pytest.mark.parametrize("one, known", MISTAKES, ids=named)
def test_a_known_mistake_is_named(one, known):
    for seed in SEEDS:
        with pytest.raises(NotYet) as caught:
            one(known.answer, seed=seed)
        said = " ".join(str(caught.value).split())
        assert known.when in said and known.so in said and known.read[1] in said


@pytest.mark.parametrize("one, known", MISTAKES, ids=named)
def test_what_is_to_be_read_stands_in_the_book(one, known):
    page, heading = known.read
    assert heading in headings(page)
