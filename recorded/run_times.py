"""How long each page takes, from a fresh kernel to its last cell, on one thread."""

import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

SEEDS = (0,)
CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"


def run(folder: Path) -> dict[str, Any]:
    """Run every notebook of the book once and keep its seconds; nothing that a notebook shows is kept."""
    return {"seconds": {path.stem: round(seconds_of(path), 1) for path in sorted(CHAPTERS.glob("*.ipynb"))}}


def seconds_of(path: Path) -> float:
    """The seconds that a notebook takes, its kernel's start among them."""
    client = NotebookClient(
        nbformat.read(path, as_version=4),
        timeout=600,
        kernel_name="python3",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    begun = time.perf_counter()
    client.execute()
    return time.perf_counter() - begun
