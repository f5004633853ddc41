"""Runs notebooks from top to bottom in the environment of whoever runs this, and stores nothing: `make test-colab`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError


def passes(path: Path) -> bool:
    """Whether every cell of a notebook runs; what failed is printed."""
    notebook = nbformat.read(path, as_version=4)
    kernel = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=1200, kernel_name="python3", resources=kernel)
    started = time.perf_counter()
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return False
    print(f"{path}: {time.perf_counter() - started:.0f} s", flush=True)
    return True


def main(arguments: Sequence[str]) -> int:
    """Run the named notebooks, two at a time; 1 if one of them failed."""
    print(", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "ipython", "ipywidgets", "anywidget")))
    with ProcessPoolExecutor(2) as processes:
        return int(not all(list(processes.map(passes, map(Path, arguments)))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
