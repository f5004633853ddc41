"""A widget that lives in a kernel and, from the same JavaScript, in a page that has none."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any

import anywidget

_HERE = Path(__file__).parent
_EXPORT = "export default"


def read_module(name: str) -> str:
    """Give a widget's JavaScript as one text without imports: what all share, then its own file `name`."""
    return "".join((_HERE / part).read_text(encoding="utf-8") for part in ("page.js", name))


class StaticWidget(anywidget.AnyWidget):
    """An anywidget that also shows itself as self-contained HTML: no kernel, no network.

    A subclass gives `_esm`, read by `read_module`, whose own part ends in `export default { render }`; `_css`, which
    styles nothing outside the widget; traits tagged `static=True`, which are the state of the page's copy; and the
    methods `picture` and `describe`.
    """

    def picture(self) -> bytes:
        """Draw the widget as it stands, as a PNG, for where no script runs."""
        raise ValueError(f"{type(self).__name__}: expected a method picture() that returns a PNG")

    def describe(self) -> str:
        """Say in a sentence what the picture shows: its alternative text."""
        raise ValueError(f"{type(self).__name__}: expected a method describe() that returns a sentence")

    def static_html(self) -> str:
        """Give the widget as HTML that works by itself: its state, its script, its style, and a picture until they run.

        The same state gives the same text, so that a notebook's stored output is stable.
        """
        return self._html(self.picture())

    def _html(self, png: bytes) -> str:
        names = sorted(self.trait_names(static=True))
        state = json.dumps({name: getattr(self, name) for name in names}, separators=(",", ":"), allow_nan=False)
        script, style = str(self._esm), str(self._css)
        # Our own files, so an assertion: what the page relies on to embed them as they are.
        assert script.count(_EXPORT) == 1 and "</" not in script and "<!--" not in script and "</" not in style
        key = hashlib.sha256(f"{type(self).__name__}{state}".encode()).hexdigest()[:12]
        shim = (_HERE / "shim.js").read_text(encoding="utf-8").replace("STATIC_ID", key)
        alt = html.escape(self.describe().encode("utf-8", "replace").decode("utf-8"))
        return (
            f'<div class="attn-static tex2jax_ignore mathjax_ignore" data-attn-id="{key}">\n<style>\n{style}</style>\n'
            f'<div class="attn-place"><img class="attn-picture" alt="{alt}" '
            f'src="data:image/png;base64,{base64.b64encode(png).decode()}"></div>\n'
            # No tag can begin inside the state, whatever the tokens are.
            f'<script type="application/json">{state.replace("<", chr(92) + "u003c")}</script>\n'
            f'<script type="module">\n{script.replace(_EXPORT, "const widget =")}{shim}</script>\n</div>'
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        png = self.picture()
        shown = {"text/plain": repr(self), "text/html": self._html(png), "image/png": base64.b64encode(png).decode()}
        return {**data, **shown}, metadata
