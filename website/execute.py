"""Run notebooks in place and store what a reader should see: outputs, but no widget state and no machine's versions."""

from __future__ import annotations

import copy
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
# Without the interpreter's version, which would change the file on every machine.
LANGUAGE = {
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "pygments_lexer": "ipython3",
}
PROGRESS = re.compile(r"[^\r\n]*\d+%\|[^\r\n]*")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
NOT_SEEN = 0.1  # how far a line of a picture may move, in points
TIMEOUT = 1200  # seconds a cell may take: more than ten times what the slowest does on a quiet machine


def clean(notebook: Any) -> Any:
    """A copy of an executed notebook, without what changes from run to run or serves a live kernel only."""
    notebook = nbformat.from_dict(notebook)
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": LANGUAGE})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell.setdefault("id", f"cell-{number:03d}")
        for key in ("execution", "collapsed", "scrolled", "ExecuteTime"):
            cell.metadata.pop(key, None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_spent(output)]
    nbformat.validate(notebook)
    return notebook


def _is_spent(output: Any) -> bool:
    """Whether nothing is left of an output: a widget's view without a picture, or a progress bar that has finished."""
    if output.get("name") == "stderr":
        return not PROGRESS.sub("", output["text"]).strip()
    return "data" in output and not output["data"]


def looks_alike(old: str, new: str) -> bool:
    """Whether two SVG pictures differ only in numbers, and these so little that nobody sees it."""
    if NUMBER.sub("", old) != NUMBER.sub("", new):
        return False
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return all(abs(float(a) - float(b)) < NOT_SEEN for a, b in pairs)


def keep_pictures(stored: Any, executed: Any) -> None:
    """Put back each picture that only another processor's last digits have changed."""
    before = {cell.get("id"): cell for cell in stored.cells}
    for cell in executed.cells:
        old = before.get(cell.id, {})
        for was, now in zip(old.get("outputs", []), cell.get("outputs", []), strict=False):
            pictures = [each.get("data", {}).get("image/svg+xml") for each in (was, now)]
            if all(pictures) and looks_alike(*pictures):
                now["data"] = was["data"]


def execute(path: Path) -> None:
    """Run one notebook from a fresh kernel in its own folder, and write it back only if every cell passed."""
    notebook = nbformat.read(path, as_version=4)
    stored = copy.deepcopy(notebook)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],  # it warns of unencrypted TCP on this machine itself
        resources={"metadata": {"path": str(path.parent)}},
    )
    executed = clean(client.execute())
    keep_pictures(stored, executed)
    nbformat.write(executed, path)


def main(arguments: Sequence[str]) -> int:
    """Run the named notebooks; 1 if one of them failed."""
    failed = False
    for name in arguments:
        started = time.perf_counter()
        try:
            execute(Path(name))
        except CellExecutionError as error:
            failed = True
            print(f"{name}: a cell failed, nothing was written\n{error}", file=sys.stderr)
        else:
            print(f"{name}: {time.perf_counter() - started:.1f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
