"""What the widgets say: the messages of their JavaScript, as Babel extracts them for a catalogue."""

import io
from pathlib import Path

from babel.messages.extract import extract

from attn_book import widgets

SCRIPTS = sorted(Path(widgets.__file__).parent.glob("*.js"))


def extracted(script):
    """The messages of a script."""
    found = extract("javascript", io.BytesIO(script.encode()), keywords={"say": None})
    return {message for _, message, _, _ in found}


def catalogue(translate):
    """All messages of all widgets, from English to what `translate` makes of them."""
    return {message: translate(message) for path in SCRIPTS for message in extracted(path.read_text(encoding="utf-8"))}
