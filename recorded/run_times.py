"""How long each page takes, from a fresh kernel to its last cell, on one thread."""

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

SEEDS = (0,)
CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
# The kernel's processor time, its own and its child processes': on one thread that is the time on a quiet machine, and
# it hardly grows on a busy one.
SPENT = """
import resource
sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
"""


def run(folder: Path) -> dict[str, Any]:
    """Run every notebook of the book once and keep its seconds; nothing that a notebook shows is kept."""
    # The instructors' page adds these times up, so a new chapter's must be there before it can run.
    pages = [path for path in sorted(CHAPTERS.glob("*.ipynb")) if path.stem != "instructors"]
    return {"seconds": {path.stem: round(seconds_of(path), 1) for path in pages}}


def seconds_of(path: Path) -> float:
    """The seconds of processor time that a notebook takes, its kernel's start among them."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(SPENT))
    client = NotebookClient(
        notebook,
        timeout=1200,
        kernel_name="python3",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    return float(notebook.cells[-1].outputs[0].data["text/plain"])
