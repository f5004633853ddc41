"""What a row of the table of hostile inputs is."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """``call`` with what is ``given``, by name: a ValueError that begins with the name of the wrong argument."""

    name: str
    call: Callable[..., object]
    given: Mapping[str, Any]
    argument: str


def wrong(label, call, right, *faults):
    """A row for each fault ``(argument, value)``, or ``(argument, value, the name that the error begins with)``."""
    return [
        Row(f"{label}: {argument} {number}", call, right | {argument: value}, (*named, argument)[0])
        for number, (argument, value, *named) in enumerate(faults)
    ]


def sizes(label, call, right, **values):
    """Rows in which an argument has each of these values in turn."""
    return wrong(label, call, right, *((name, value) for name, several in values.items() for value in several))
