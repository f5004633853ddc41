"""Writes into each chapter's opening how long it takes: to read, by its words, and to run, as recorded."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "recorded" / "results" / "run_times.json"
WORDS_A_MINUTE = 200
# The sentence that is generated; what stands after it in its paragraph is an author's.
SENTENCE = re.compile(r"^\*\*It takes\*\* [^\n]*?\)\.", re.MULTILINE)


def reading_minutes(notebook: Any) -> float:
    """Minutes of reading: all prose, exercises and folded solutions included, code left out."""
    prose = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    return sum(len(text.split()) for text in prose) / WORDS_A_MINUTE


def sentence(notebook: Any, seconds: float, machine: str) -> str:
    """What a chapter's opening says of its time."""
    minutes = max(5, 5 * round(reading_minutes(notebook) / 5))
    run = f"{max(5, 5 * round(seconds / 5))} seconds to run" if seconds < 90 else f"{seconds / 60:.0f} minutes to run"
    reading = f"about {minutes} minutes to read, without working through the code and the exercises"
    return f"**It takes** {reading}, and {run} ({machine})."


def on(machine: str) -> str:
    """A record's machine in a reader's words: "one thread of a CPU with 2 cores"."""
    found = re.search(r"(\d+) CPU cores, (\d+) threads?", machine)
    assert found, machine  # run.py writes it
    threads = "one thread" if found[2] == "1" else f"{found[2]} threads"
    return f"{threads} of a CPU with {found[1]} cores"


def headed(notebook: Any, stem: str, record: dict[str, Any]) -> Any:
    """A copy of a notebook with the sentence as it should be; without a place for it, as it was.

    Raises:
        ValueError: it has a place, and no time of the page was recorded.
    """
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and SENTENCE.search(cell.source):
            if stem not in record["seconds"]:
                raise ValueError(f"chapters/{stem}.ipynb: no time of it is recorded: make record RUNS=run_times")
            said = sentence(notebook, record["seconds"][stem], on(record["run"]["machine"]))
            cell.source = said.join(SENTENCE.split(cell.source))
    return notebook


def main() -> int:
    """Write the sentence into every notebook that has a place for it."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        before = nbformat.read(path, as_version=4)
        after = headed(before, path.stem, record)
        if after != before:
            nbformat.write(after, path)
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
