"""How long each page of the book runs, from a fresh kernel to its last cell."""

import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

SEEDS = (0,)
PAGES = Path(__file__).resolve().parents[1] / "chapters"


def run(folder: Path) -> dict[str, Any]:
    """Run every page once, one after the other, one thread each."""
    seconds = {}
    for path in sorted(PAGES.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        begun = time.perf_counter()
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": PAGES}}).execute()
        seconds[path.stem] = round(time.perf_counter() - begun, 1)
    return {"seconds": seconds}
