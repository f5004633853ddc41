"""Embed today's script, style and new traits into the widgets that the notebooks hold, without running a cell."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
import traitlets

from attn_book import widgets
from attn_book.widgets.base import StaticWidget, embed

NOTEBOOKS = sorted(Path(__file__).resolve().parents[1].glob("chapters/*.ipynb"))
# What is kept of a stored widget: the picture's alternative text, the picture, the state.
STORED = re.compile(
    r'<div class="attn-static [^>]* data-attn-id="\w+".*?<img class="attn-picture" alt="([^"]*)" '
    r'src="data:image/png;base64,([^"]*)">.*?<script type="application/json">(.*?)</script>.*</div>',
    flags=re.DOTALL,
)


def widget_of(names: set[str]) -> type[StaticWidget]:
    """Return the class of a stored widget: the one that has most of the names in its state."""
    classes = [getattr(widgets, name) for name in widgets.__all__]
    return max(classes, key=lambda cls: len(names & set(cls.class_trait_names(static=True))))


def renew(stored: str) -> str:
    """Return a stored widget's HTML with today's script and style, new traits at their defaults; other HTML as it is.

    Raises:
        ValueError: if the state has a name that the widget has not, or lacks one that has no default. The message
            names the widget.
    """
    match = STORED.fullmatch(stored)
    if match is None:
        return stored
    state = json.loads(match[3])
    widget = widget_of(set(state))
    traits = widget.class_traits(static=True)
    if gone := sorted(set(state) - set(traits)):
        raise ValueError(f"{widget.__name__}: expected no stored {', '.join(gone)}: run the notebook with make execute")
    for name in set(traits) - set(state):
        state[name] = traits[name].default()
        if state[name] is traitlets.Undefined or (state[name] is None and not traits[name].allow_none):
            raise ValueError(f"{widget.__name__}: expected a default of {name}: run the notebook with make execute")
    return embed(widget, match[1], match[2], dict(sorted(state.items())))


def renew_notebook(path: Path) -> bool:
    """Renew all widgets of a notebook, and return whether that changed it.

    Raises:
        ValueError: if a widget cannot be renewed. The message names the notebook and the widget.
    """
    notebook = nbformat.read(path, as_version=4)
    changed = False
    for data in [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]:
        try:
            html = renew(data.get("text/html", ""))
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
        if html != data.get("text/html", ""):
            data["text/html"], changed = html, True
    if changed:
        nbformat.write(notebook, path)
    return changed


def main(arguments: Sequence[str]) -> int:
    """Renew the widgets of the named notebooks, or of all, and print which were changed."""
    try:
        for path in map(Path, arguments or NOTEBOOKS):
            if renew_notebook(path):
                print(f"{path.name}: its widgets have today's script and style")
    except ValueError as error:
        print(f"make: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
