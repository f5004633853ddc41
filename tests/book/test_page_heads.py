"""The sentence that says how long a chapter takes: its numbers, and what around it stays."""

import nbformat
import pytest

from website import page_heads

MACHINE = "Linux, x86_64, 2 CPU cores, 1 threads"


def notebook(*texts):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text) for text in texts])


def record(**seconds):
    return {"run": {"machine": MACHINE}, "seconds": seconds}


TO_READ = "to read, without working through the code and the exercises, and"


@pytest.mark.parametrize(
    "words, seconds, said",
    [
        (3, 2.0, f"about 5 minutes {TO_READ} 5 seconds to run"),
        (4_050, 41.0, f"about 20 minutes {TO_READ} 40 seconds to run"),
        (200, 125.0, f"about 5 minutes {TO_READ} 2 minutes to run"),
    ],
)
def test_minutes_and_seconds_are_rounded(words, seconds, said):
    found = page_heads.sentence(notebook("word " * words), seconds, page_heads.on(MACHINE))
    assert found == f"**It takes** {said} (one thread of a CPU with 2 cores)."


def test_code_is_not_read():
    page = notebook("a b c")
    page.cells.append(nbformat.v4.new_code_cell("x = 1 " * 1_000))
    assert page_heads.reading_minutes(page) == 3 / page_heads.WORDS_A_MINUTE


def test_what_stands_around_the_sentence_stays():
    page = notebook(
        "# Title\n\n**You need** this.\n**It takes** (). Longer runs were recorded.\n\nMore (so).", "**It runs**"
    )
    (first, second) = page_heads.headed(page, "a", record(a=10)).cells
    assert first.source.startswith("# Title\n\n**You need** this.\n**It takes** about 5 minutes")
    assert first.source.endswith("(one thread of a CPU with 2 cores). Longer runs were recorded.\n\nMore (so).")
    assert second.source == "**It runs**" and "()" in page.cells[0].source  # the page itself is left alone


def test_a_second_time_changes_nothing():
    once = page_heads.headed(notebook("**It takes** ()."), "a", record(a=10))
    assert page_heads.headed(once, "a", record(a=10)) == once


def test_a_page_without_a_record_is_named():
    with pytest.raises(ValueError, match=r"chapters/b\.ipynb: no time of it is recorded: make record RUNS=run_times"):
        page_heads.headed(notebook("**It takes** ()."), "b", record(a=10))
    assert page_heads.headed(notebook("No such sentence."), "b", record(a=10)).cells[0].source == "No such sentence."
