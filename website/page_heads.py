"""Writes into each chapter's opening how long it takes to read and to run, and into the first page the hours of all."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "recorded" / "results" / "run_times.json"
WORDS_A_MINUTE = 200
CODE_LINES_A_MINUTE = 15
MINUTES_AN_EXERCISE = 20
EXERCISES_DONE = 1 / 3
EXERCISES = re.compile(r"```\{(exercise|solution)-start\}.*?```\{\1-end\}\n```", re.DOTALL)
FOLDED = {"hide-input", "remove-input", "remove-cell"}
# The sentence that is generated; what stands after it in its paragraph is an author's.
SENTENCE = re.compile(r"^\*\*It takes\*\* [^\n]*?\)\.", re.MULTILINE)
HOURS = re.compile(r"about \d+ hours(?=, nothing to install)")


def prose(notebook: Any) -> str:
    """All Markdown of a notebook."""
    return "\n\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")


def reading_minutes(notebook: Any) -> float:
    """Minutes of reading: prose without exercises and their solutions, and without code."""
    return len(EXERCISES.sub("", prose(notebook)).split()) / WORDS_A_MINUTE


def study_minutes(notebook: Any) -> float:
    """Minutes for prose, the code that is not folded, and one exercise in three."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    visible = [cell for cell in code if not FOLDED & set(cell["metadata"].get("tags", []))]
    lines = sum(len("".join(cell["source"]).splitlines()) for cell in visible)
    exercises = EXERCISES_DONE * prose(notebook).count("```{exercise-start}")
    return reading_minutes(notebook) + lines / CODE_LINES_A_MINUTE + exercises * MINUTES_AN_EXERCISE


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


def first_page(text: str, chapters: Sequence[Any]) -> str:
    """The first page's text with the hours that the chapters take, to the nearest five."""
    hours = 5 * round(sum(map(study_minutes, chapters)) / 60 / 5)
    return HOURS.sub(f"about {hours} hours", text)


def main() -> int:
    """Write the sentences into every page that has a place for one."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    chapters = []
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        before = nbformat.read(path, as_version=4)
        after = headed(before, path.stem, record)
        if path.stem[:2].isdigit():
            chapters.append(after)
        if after != before:
            nbformat.write(after, path)
            print(f"wrote {path.relative_to(ROOT)}")
    index = ROOT / "index.md"
    text = index.read_text(encoding="utf-8")
    index.write_text(first_page(text, chapters), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
