"""What all widgets share: one script runs beside a kernel and in a page that has none."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import operator
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HERE = Path(__file__).parent
_EXPORT = "export default"


class Joined:
    """Files of this folder as one text, in this order, read anew each time that `str` asks for it.

    A widget's script is `page.js`, which all widgets share, and the widget's own files, joined into one module without
    imports; its style likewise. Because they are read anew, a change to a file shows as soon as the cell that makes the
    widget runs again. Every page holds a copy, so lines that are comments alone are left out.
    """

    def __init__(self, *names: str) -> None:
        self.names = names

    def __str__(self) -> str:
        text = "".join((_HERE / name).read_text(encoding="utf-8") for name in self.names)
        return re.sub(r"^ *//.*\n", "", text, flags=re.MULTILINE)


class RefusedError(ValueError, traitlets.TraitError):
    """A ValueError after which traitlets restores all traits that were set together with the refused value."""


class Whole(traitlets.TraitType[int, Any]):
    """A whole number within limits. Unlike traitlets.Int it accepts NumPy's integers and raises a ValueError."""

    def __init__(self, default: int, *limits: int) -> None:
        super().__init__(default)
        self.limits = limits

    def validate(self, _: Any, value: Any) -> int:
        """Return the value as an int; traitlets calls this before the trait is set.

        Raises:
            ValueError: if the value is not a whole number within the limits.
        """
        return check_whole(str(self.name), value, *self.limits)


class Real(traitlets.TraitType[float, Any]):
    """A number within limits, kept as a float. NumPy's numbers are accepted; anything else raises a ValueError."""

    def __init__(self, default: float, low: float, high: float) -> None:
        super().__init__(default)
        self.limits = low, high

    def validate(self, _: Any, value: Any) -> float:
        """Return the value as a float; traitlets calls this before the trait is set.

        Raises:
            ValueError: if the value is not a number within the limits.
        """
        return check_real(str(self.name), value, *self.limits)


class Numbers(traitlets.TraitType[list[float], Any]):
    """Numbers within ±`limit`, as many as `count` allows: a sequence, an array or a tensor, kept as floats."""

    def __init__(self, default: Sequence[float], count: tuple[int, int], limit: float) -> None:
        super().__init__(list(default))
        self.count, self.limit = count, limit

    def validate(self, _: Any, value: Any) -> list[float]:
        """Return the numbers as a list; traitlets calls this before the trait is set.

        Raises:
            ValueError: if these are not numbers within the limit, or too few or too many.
        """
        return check_numbers(str(self.name), value, self.count, self.limit)


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        ValueError: if the file is not JSON. The message names the file.
        OSError: if the file cannot be read.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))  # with or without a byte order mark
    except TypeError:
        raise ValueError(f"path: expected a path, got {path!r}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"path: expected a file of JSON, got {path}: {str(error):.80}") from None


def check_whole(name: str, value: Any, first: int, last: int) -> int:
    """Return `value` as an int.

    Raises:
        ValueError: if it is not a whole number from `first` to `last`. The message names `name`.
    """
    try:
        number = first - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = first - 1
    if not first <= number <= last:
        raise RefusedError(f"{name}: expected a whole number from {first} to {last}, got {value!r}")
    return number


def check_real(name: str, value: Any, low: float, high: float) -> float:
    """Return `value` as a float.

    Raises:
        ValueError: if it is not a number from `low` to `high`. The message names `name`.
    """
    if not _is_real(value) or not low <= value <= high:
        raise RefusedError(f"{name}: expected a number from {low:g} to {high:g}, got {value!r}")
    return float(value)


def check_numbers(name: str, value: Any, count: tuple[int, int], limit: float) -> list[float]:
    """Return the numbers of a sequence, an array or a tensor as floats.

    Raises:
        ValueError: if they are fewer or more than `count` says, or one is not a number within ±`limit`. The message
            names `name`.
    """
    numbers = value.tolist() if hasattr(value, "tolist") else value
    expected = f"{name}: expected {count[0]} to {count[1]} numbers from {-limit:g} to {limit:g}"
    fits = isinstance(numbers, Sequence) and not isinstance(numbers, str | bytes)
    if not fits or not count[0] <= len(numbers) <= count[1]:
        raise RefusedError(f"{expected}, got {value!r}")
    for number in numbers:
        if not _is_real(number) or not -limit <= number <= limit:
            raise RefusedError(f"{expected}, got {number!r} among them")
    return [float(number) for number in numbers]


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def to_base64(array: np.ndarray) -> str:
    """Return the bytes of an array as text for the page; `from_base64` reverses it."""
    return base64.b64encode(array.tobytes()).decode()


def from_base64(text: str, dtype: Any) -> np.ndarray:
    """Return the numbers that `to_base64` wrote, one-dimensional and of this dtype."""
    return np.frombuffer(base64.b64decode(text), dtype)


def png_of(figure: Figure, colours: int, *, thin_lines: bool = True) -> bytes:
    """Draw a figure as a PNG of few colours. With `thin_lines`, colours that cover few pixels are kept as well."""
    from PIL import Image

    with warnings.catch_warnings():
        # A script that the font lacks is drawn as boxes; the page itself shows it.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(full := io.BytesIO(), format="png", facecolor="white")
    method = Image.Quantize.MAXCOVERAGE if thin_lines else Image.Quantize.MEDIANCUT
    image = Image.open(full).convert("RGB").quantize(colours, method=method, dither=Image.Dither.NONE)
    image.save(small := io.BytesIO(), format="png", optimize=True)
    return small.getvalue()


class StaticWidget(anywidget.AnyWidget):
    """An anywidget that can also be stored as self-contained HTML, which needs neither a kernel nor the network.

    A subclass defines

    - `_esm`, its script, a `Joined` that begins with `page.js` and ends with `export default { render: mount(draw) }`;
    - `_css`, its style, a `Joined` that begins with `page.css` and applies to nothing outside the widget;
    - traits tagged `static=True`, which are the state that the stored copy begins with;
    - the methods `picture` and `describe`;
    - `_said`, the names of the traits that hold prose for the reader. The page passes it through `say`, so that a
      translated book can show it in its own language.
    """

    _said: tuple[str, ...] = ()

    def picture(self) -> bytes:
        """Draw the widget's present state as a PNG, for readers whose page runs no script."""
        raise ValueError(f"{type(self).__name__}: expected a method picture() that returns a PNG")

    def describe(self) -> str:
        """Describe the picture in a sentence, its alternative text."""
        raise ValueError(f"{type(self).__name__}: expected a method describe() that returns a sentence")

    def said(self) -> list[str]:
        """Return the prose in the widget's state that a translation must contain, each text once."""
        return list(dict.fromkeys(prose_of([getattr(self, name) for name in self._said])))

    def static_html(self) -> str:
        """Return self-contained HTML: the state, script and style, and a picture to show until the script runs.

        The same state gives the same text, so that a notebook's stored output is stable.
        """
        return self._html(self.picture())

    def _html(self, png: bytes) -> str:
        names = sorted(self.trait_names(static=True))
        alt = html.escape(self.describe().encode("utf-8", "replace").decode("utf-8"))
        return embed(self, alt, base64.b64encode(png).decode(), {name: getattr(self, name) for name in names})

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        png = self.picture()
        static = {"text/plain": repr(self), "text/html": self._html(png), "image/png": base64.b64encode(png).decode()}
        return {**data, **static}, metadata


def embed(widget: StaticWidget | type[StaticWidget], alt: str, picture: str, state: dict[str, Any]) -> str:
    """Return a widget's HTML. Its alternative text and picture (base64) are already escaped."""
    script, style = str(widget._esm), str(widget._css)
    values = json.dumps(state, separators=(",", ":"), allow_nan=False)
    name = (widget if isinstance(widget, type) else type(widget)).__name__
    key = hashlib.sha256(f"{name}{values}".encode()).hexdigest()[:12]
    # These are our own files, so an assertion is enough: the page embeds them unescaped.
    assert script.count(_EXPORT) == 1 and "</" not in script and "<!--" not in script and "</" not in style
    shim = (_HERE / "shim.js").read_text(encoding="utf-8").replace("STATIC_ID", key)
    said = f' data-attn-said="{" ".join(widget._said)}"' if widget._said else ""
    return (
        f'<div class="attn-static tex2jax_ignore mathjax_ignore" data-attn-id="{key}"{said}>\n'
        f"<style>\n{style}</style>\n"
        f'<div class="attn-place"><img class="attn-picture" alt="{alt}" '
        f'src="data:image/png;base64,{picture}"></div>\n'
        # With "<" escaped, no tag can begin inside the state, whatever the tokens are.
        f'<script type="application/json">{values.replace("<", chr(92) + "u003c")}</script>\n'
        f'<script type="module">\n{script.replace(_EXPORT, "const widget =")}{shim}</script>\n</div>'
    )


def prose_of(value: Any) -> Iterator[str]:
    """The strings in a value, however nested, except those without a letter, which need no translation."""
    if isinstance(value, str):
        if any(letter.isalpha() for letter in value):
            yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from prose_of(part)
