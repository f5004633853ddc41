"""The chapters' numbers: files follow the table of contents."""

import yaml

from tests.book.built_site import ROOT
from website import number


def test_the_chapters_are_numbered_straight_through():
    names = number.renamed(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8")))
    assert len(names) > 10 and all(old == new for old, new in names.items())


def test_an_inserted_chapter_moves_those_behind_it():
    chapters = [{"file": f"chapters/{stem}"} for stem in ("01_a", "00_new", "02_b")]
    names = number.renamed({"parts": [{"numbered": True, "chapters": chapters}, {"chapters": [{"file": "glossary"}]}]})
    assert names == {"01_a": "01_a", "00_new": "02_new", "02_b": "03_b"}
    text = "[Chapter 2](02_b), [2](02_b) and [chapter 0](chapters/00_new), but 02_bc; quizzes/02_b.json"
    numbered = "[Chapter 3](03_b), [3](03_b) and [chapter 2](chapters/02_new), but 02_bc; quizzes/03_b.json"
    assert number.numbered(text, names) == numbered
