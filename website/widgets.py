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
# What a stored widget keeps: its id, the picture's alternative text, the picture, the state.
STORED = re.compile(
    r'<div class="attn-static [^>]* data-attn-id="(\w+)".*?<img class="attn-picture" alt="([^"]*)" '
    r'src="data:image/png;base64,([^"]*)">.*?<script type="application/json">(.*?)</script>.*</div>',
    flags=re.DOTALL,
)


def kept(stored: str) -> tuple[type[StaticWidget], tuple[str, ...]] | None:
    """Give a stored widget's class, which its state's names tell, and what it keeps; None for other HTML.

    Raises: ValueError where no widget has a state of these names.
    """
    found = STORED.fullmatch(stored)
    if found is None:
        return None
    names = set(json.loads(found[4]))
    every = [getattr(widgets, name) for name in widgets.__all__]
    fitting = [widget for widget in every if set(widget.class_trait_names(static=True)) == names]
    if len(fitting) != 1:
        raise ValueError(f"no widget has the state {', '.join(sorted(names))}: run the notebook with make execute")
    return fitting[0], found.groups()


def renew(stored: str) -> str:
    """Give a stored widget's HTML with today's script and style around what it keeps; other HTML as it is.

    Raises: ValueError where no widget has a state as the stored one's.
    """
    found = kept(stored)
    return embed(found[0], *found[1]) if found else stored


def renew_notebook(path: Path) -> bool:
    """Renew all widgets of a notebook; whether that changed it."""
    notebook = nbformat.read(path, as_version=4)
    changed = False
    for data in [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]:
        if "text/html" in data and (html := renew(data["text/html"])) != data["text/html"]:
            data["text/html"], changed = html, True
    if changed:
        nbformat.write(notebook, path)
    return changed


def main(arguments: Sequence[str]) -> int:
    """Renew the named notebooks, or all, and say which were changed."""
    for path in map(Path, arguments or NOTEBOOKS):
        if renew_notebook(path):
            print(f"{path.name}: its widgets have today's script and style")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
