"""The chapters' numbers: files follow the table of contents, and each mention has the number of its file."""

import re

import pytest
import yaml

from tests.book import notebooks as nb
from website import number

TOC = yaml.safe_load((nb.ROOT / "_toc.yml").read_text(encoding="utf-8"))
PAGES = [*nb.NOTEBOOKS, *(nb.ROOT / f"{name}.md" for name in ("index", "notation", "glossary", "README"))]


def test_the_chapters_are_numbered_straight_through():
    names = number.renamed(TOC)
    assert len(names) > 10 and all(old == new for old, new in names.items())


def prose(path):
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    return "\n".join(nb.text(cell["source"]) for cell in nb.read(path)["cells"] if cell["cell_type"] == "markdown")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_chapter_is_mentioned_by_a_link_with_its_number(path):
    text = prose(path)
    assert number.numbered(text, number.renamed(TOC)) == text
    assert re.findall(r"(?<!\[)(?<!Start with )\b[Cc]hapters? \d+", text) == []


def test_an_inserted_chapter_moves_those_behind_it():
    chapters = [{"file": f"chapters/{stem}"} for stem in ("01_a", "00_new", "02_b")]
    names = number.renamed({"parts": [{"numbered": True, "chapters": chapters}, {"chapters": [{"file": "glossary"}]}]})
    assert names == {"01_a": "01_a", "00_new": "02_new", "02_b": "03_b"}
    text = "[Chapter 2](02_b), [2](02_b) and [chapter 0](chapters/00_new), but 02_bc; quizzes/02_b.json"
    assert (
        number.numbered(text, names)
        == "[Chapter 3](03_b), [3](03_b) and [chapter 2](chapters/02_new), but 02_bc; quizzes/03_b.json"
    )


@pytest.mark.parametrize("stems", [("01_a", "two"), ("01_a", "02_a")])
def test_names_that_cannot_be_numbered_are_refused(stems):
    with pytest.raises(ValueError, match="_toc.yml: expected chapters NN_name"):
        number.renamed({"parts": [{"numbered": True, "chapters": [{"file": f"chapters/{stem}"} for stem in stems]}]})
