"""Embed today's script and style into the widgets that the notebooks hold, without running a cell."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat

from attn_book import widgets
from attn_book.widgets.base import StaticWidget, embed

NOTEBOOKS = sorted(Path(__file__).resolve().parents[1].glob("chapters/*.ipynb"))
# What is kept of a stored widget: its id, the picture's alternative text, the picture, the state.
STORED = re.compile(
    r'<div class="attn-static [^>]* data-attn-id="(\w+)".*?<img class="attn-picture" alt="([^"]*)" '
    r'src="data:image/png;base64,([^"]*)">.*?<script type="application/json">(.*?)</script>.*</div>',
    flags=re.DOTALL,
)


def read_stored(stored: str) -> tuple[type[StaticWidget], tuple[str, ...]] | None:
    """Return a stored widget's class, known by the names in its state, and what is kept of it; None for other HTML.

    Raises:
        ValueError: if no widget has a state of these names.
    """
    match = STORED.fullmatch(stored)
    if match is None:
        return None
    names = set(json.loads(match[4]))
    classes = [getattr(widgets, name) for name in widgets.__all__]
    fitting = [cls for cls in classes if set(cls.class_trait_names(static=True)) == names]
    if len(fitting) != 1:
        raise ValueError(f"no widget has the state {', '.join(sorted(names))}: run the notebook with make execute")
    return fitting[0], match.groups()


def renew(stored: str) -> str:
    """Return a stored widget's HTML with today's script and style around what is kept; other HTML as it is.

    Raises:
        ValueError: if no widget has the stored state.
    """
    widget = read_stored(stored)
    return embed(widget[0], *widget[1]) if widget else stored


def renew_notebook(path: Path) -> bool:
    """Renew all widgets of a notebook, and return whether that changed it."""
    notebook = nbformat.read(path, as_version=4)
    changed = False
    for data in [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]:
        if "text/html" in data and (html := renew(data["text/html"])) != data["text/html"]:
            data["text/html"], changed = html, True
    if changed:
        nbformat.write(notebook, path)
    return changed


def main(arguments: Sequence[str]) -> int:
    """Renew the widgets of the named notebooks, or of all, and print which were changed."""
    for path in map(Path, arguments or NOTEBOOKS):
        if renew_notebook(path):
            print(f"{path.name}: its widgets have today's script and style")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
