"""The sentence that says how long a chapter takes: its numbers, and what around it stays."""

import nbformat

from website import page_heads

MACHINE = "Linux, x86_64, 2 CPU cores, 1 threads"


def notebook(*texts):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text) for text in texts])


def record(**seconds):
    return {"run": {"machine": MACHINE}, "seconds": seconds}


def test_what_stands_around_the_sentence_stays():
    page = notebook(
        "# Title\n\n**You need** this.\n**It takes** (). Longer runs were recorded.\n\nMore (so).", "**It runs**"
    )
    (first, second) = page_heads.headed(page, "a", record(a=10)).cells
    assert first.source.startswith("# Title\n\n**You need** this.\n**It takes** about 5 minutes")
    assert first.source.endswith("(one thread of a CPU with 2 cores). Longer runs were recorded.\n\nMore (so).")
    assert second.source == "**It runs**" and "()" in page.cells[0].source  # the page itself is left alone


def test_the_first_page_counts_prose_visible_code_and_one_exercise_in_three():
    exercise = "```{exercise-start} T\n```\n" + "word " * 10_000 + "\n```{exercise-end}\n```"
    page = notebook("word " * 12_000, *[exercise] * 9)  # an hour, and nine exercises
    page.cells.append(nbformat.v4.new_code_cell("x\n" * 900))  # an hour
    page.cells.append(nbformat.v4.new_code_cell("x\n" * 9000, metadata={"tags": ["hide-input"]}))
    said = "about 0 hours, nothing to install"
    assert page_heads.first_page(said, [page] * 5) == said.replace("0", "15")
