"""A widget that lives in a kernel and, from the same JavaScript, in a page that has none."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anywidget
import traitlets

_HERE = Path(__file__).parent
_EXPORT = "export default"


class Joined:
    """Files of this folder as one text, in this order, read anew each time that `str` asks for it.

    A widget's script is `page.js`, which all widgets share, and the widget's own files, joined into one module without
    imports; its style likewise. Because they are read anew, a change to a file shows as soon as the cell that makes the
    widget runs again.
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    def __str__(self) -> str:
        return "".join((_HERE / name).read_text(encoding="utf-8") for name in self.names)


class RefusedError(ValueError, traitlets.TraitError):
    """A ValueError after which traitlets takes back what was set together with the value."""


class Whole(traitlets.TraitType[int, Any]):
    """A whole number within limits; unlike traitlets.Int it takes NumPy's, and refuses with a ValueError."""

    def __init__(self, usual: int, *limits: int) -> None:
        super().__init__(usual)
        self.limits = limits

    def validate(self, _: Any, value: Any) -> int:
        """Give the value as an int; traitlets calls this before it is set. Raises: ValueError, naming the trait."""
        return check_whole(str(self.name), value, *self.limits)


def read_json(path: str | Path) -> Any:
    """Give what a JSON file holds. Raises: ValueError where it is none, naming the file; OSError."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))  # with a byte order mark or without
    except TypeError:
        raise ValueError(f"path: expected a path, got {path!r}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"path: expected a file of JSON, got {path}: {str(error):.80}") from None


def check_whole(name: str, value: Any, first: int, last: int) -> int:
    """Give `value` as an int. Raises: ValueError where it is none from `first` to `last`, naming `name`."""
    try:
        number = first - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = first - 1
    if not first <= number <= last:
        raise RefusedError(f"{name}: expected a whole number from {first} to {last}, got {value!r}")
    return number


class StaticWidget(anywidget.AnyWidget):
    """An anywidget that also shows itself as self-contained HTML: no kernel, no network.

    A subclass gives `_esm`, read by `read_module`, whose own part ends in `export default { render }`; `_css`, read by
    `read_style`, which styles nothing outside the widget; traits tagged `static=True`, which are the state of the
    page's copy; and the methods `picture` and `describe`. In `_said` it names those of the traits that hold prose for
    the reader, which the page passes through `say` so that a translated book can show it in its own language.
    """

    _said: tuple[str, ...] = ()

    def picture(self) -> bytes:
        """Draw the widget as it stands, as a PNG, for where no script runs."""
        raise ValueError(f"{type(self).__name__}: expected a method picture() that returns a PNG")

    def describe(self) -> str:
        """Say in a sentence what the picture shows: its alternative text."""
        raise ValueError(f"{type(self).__name__}: expected a method describe() that returns a sentence")

    def said(self) -> list[str]:
        """Give the prose for the reader in the widget's state, each text once: what a translation has to bring."""
        return list(dict.fromkeys(prose_of([getattr(self, name) for name in self._said])))

    def static_html(self) -> str:
        """Give the widget as HTML that works by itself: its state, its script, its style, and a picture until they run.

        The same state gives the same text, so that a notebook's stored output is stable.
        """
        return self._html(self.picture())

    def _html(self, png: bytes) -> str:
        names = sorted(self.trait_names(static=True))
        state = json.dumps({name: getattr(self, name) for name in names}, separators=(",", ":"), allow_nan=False)
        key = hashlib.sha256(f"{type(self).__name__}{state}".encode()).hexdigest()[:12]
        alt = html.escape(self.describe().encode("utf-8", "replace").decode("utf-8"))
        # No tag can begin inside the state, whatever the tokens are.
        return embed(self, key, alt, base64.b64encode(png).decode(), state.replace("<", chr(92) + "u003c"))

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        png = self.picture()
        shown = {"text/plain": repr(self), "text/html": self._html(png), "image/png": base64.b64encode(png).decode()}
        return {**data, **shown}, metadata


def embed(widget: StaticWidget | type[StaticWidget], key: str, alt: str, picture: str, state: str) -> str:
    """Give a widget's HTML around its id, alternative text, picture and state, all four written as HTML has them."""
    script, style = str(widget._esm), str(widget._css)
    # Our own files, so an assertion: what the page relies on to embed them as they are.
    assert script.count(_EXPORT) == 1 and "</" not in script and "<!--" not in script and "</" not in style
    shim = (_HERE / "shim.js").read_text(encoding="utf-8").replace("STATIC_ID", key)
    said = f' data-attn-said="{" ".join(widget._said)}"' if widget._said else ""
    return (
        f'<div class="attn-static tex2jax_ignore mathjax_ignore" data-attn-id="{key}"{said}>\n'
        f"<style>\n{style}</style>\n"
        f'<div class="attn-place"><img class="attn-picture" alt="{alt}" '
        f'src="data:image/png;base64,{picture}"></div>\n'
        f'<script type="application/json">{state}</script>\n'
        f'<script type="module">\n{script.replace(_EXPORT, "const widget =")}{shim}</script>\n</div>'
    )


def prose_of(value: Any) -> Iterator[str]:
    """The strings in a value and in what it holds, but for those without a letter, which are alike in any language."""
    if isinstance(value, str):
        if any(letter.isalpha() for letter in value):
            yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from prose_of(part)
