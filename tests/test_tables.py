"""Tests of the tables of results."""

import pytest
from bs4 import BeautifulSoup

from attn_book.tables import Table

TABLE = Table(["model", "BLEU", "parameters"], [("with <attention>", "61.3", 465_138), ("without", "−5.0 ± 0.2", "–")])


def test_as_html_every_cell_is_escaped_and_aligned_as_in_the_text() -> None:
    page = BeautifulSoup(TABLE._repr_html_(), "lxml")
    assert [cell.text for cell in page.select("th")] == TABLE.columns
    assert [[cell.text for cell in row.select("td")] for row in page.select("tbody tr")] == TABLE.rows
    assert [cell["style"][12:] for cell in page.select("tbody tr:first-child td")] == ["left", "right", "right"]


@pytest.mark.parametrize("cell", "3|0.25|−1.5|12 %|1,024|2.1×|3 ± 1|≈ 2|1e-7|64 MiB||–".split("|"))
def test_a_column_of_these_is_one_of_numbers(cell: str) -> None:
    assert Table(["n"], [["7"], [cell]])._is_numeric(0)


@pytest.mark.parametrize("cell", ["le", "chapter 3", "3 heads or 4 heads", "yes", "4, 5 and 6"])
def test_a_column_of_these_is_one_of_words(cell: str) -> None:
    assert not Table(["n"], [["7"], [cell]])._is_numeric(0)
