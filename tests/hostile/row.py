"""What a row of the table of hostile inputs is."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One hostile input, and the error that it must end in.

    ``call`` gets what is ``given``, by name. Where there are ``files``, it also gets the folder that holds them, by
    name: bytes are a file's, or a function's that gives them; None stands for an empty folder. ``said`` is a regular
    expression that the message has to match from its first letter on, the folder's path in it written FOLDER; it begins
    with the argument's name. The message has ``most`` letters at most, in one line.
    """

    name: str
    call: Callable[..., object]
    given: Mapping[str, Any]
    said: str
    error: type[BaseException] = ValueError
    files: Mapping[str, bytes | Callable[[], bytes] | None] | None = None
    most: int = 300


class Odd(NamedTuple):
    """An input that is odd and legitimate: ``check`` gets an empty folder, and asserts that what comes out is right."""

    name: str
    check: Callable[[Path], None]
