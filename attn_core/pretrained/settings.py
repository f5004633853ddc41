"""What a checkpoint says beside its parameters; errors of what reads a file, with the file's name."""

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from attn_core.contract import check_integer, shown

_POINTER = b"version https://git-lfs"
_KINDS = {int: "an integer of at least 1", float: "a finite number above 0", str: "a text", list: "a list"}


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Whatever goes wrong becomes a ``ValueError`` that names the file: each library has errors of its own."""
    try:
        yield
    except Exception as error:
        with path.open("rb") as file:
            pointer = file.read(len(_POINTER)) == _POINTER
        found = "a Git LFS pointer" if pointer else f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: expected {expected}, got {found}") from error


class Settings:
    """The settings of a checkpoint by name, and which of them a loader has asked for.

    A setting inside another one is called ``outer.inner``. One that is null counts as missing.
    """

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path, self.values, self._asked = path, dict(_flat(values)), set[str]()

    @classmethod
    def from_json(cls, path: Path) -> "Settings":
        """Those of a file in JSON."""
        with reading(path, "an object in JSON"):
            return cls(path, json.loads(path.read_text(encoding="utf-8")))

    def get(self, name: str, kind: type, default: Any = ...) -> Any:
        """The setting, which has to be of this kind; without a default, it has to be there."""
        self._asked.add(name)
        value = self.values.get(name, default)
        if value is ...:
            others = f"{len(self.values)} others: {', '.join(self.values)}"
            raise ValueError(f"{self.path}: expected the setting {name}, got {others}")
        if name in self.values:
            fits = isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)
            if not fits or (kind in (int, float) and not 0 < value < math.inf):
                raise ValueError(f"{self.path}: {name}: expected {_KINDS[kind]}, got {shown(value)}")
        return value

    def sizes(self, names: dict[str, str]) -> dict[str, int]:
        """What these settings say, ``{our name: theirs}``, as sizes under our names."""
        return {ours: self.get(theirs, int) for ours, theirs in names.items()}

    def expect(self, name: str, *accepted: Any) -> None:
        """Refuse any other value. A setting that is missing is the first of these."""
        self._asked.add(name)
        value = self.values.get(name, accepted[0])
        if value not in accepted:
            expected = " or ".join(map(repr, accepted))
            raise ValueError(f"{self.path}: expected {name} to be {expected}, got {shown(value)}")

    def token_ids(self, *names: str, vocab_size: int) -> tuple[int, ...]:
        """The tokens that these settings name, each of them none, one, or a list."""
        found: dict[int, None] = {}  # a set that keeps the order
        for name in names:
            self._asked.add(name)
            ids = self.values.get(name, [])
            for number in ids if isinstance(ids, list) else [ids]:
                check_integer(f"{self.path}: {name}", number, at_least=0, at_most=vocab_size - 1)
                found[number] = None
        return tuple(found)

    def refuse_others(self, harmless: Iterable[str]) -> None:
        """Refuse what nobody has asked for, unless its name fits one of these patterns."""
        others = {name: value for name, value in self.values.items() if name not in self._asked}
        unknown = [
            f"{name}={shown(x)}" for name, x in others.items() if not any(fnmatchcase(name, y) for y in harmless)
        ]
        if unknown:
            raise ValueError(f"{self.path}: expected settings that this model has, got {', '.join(unknown)}")


def _flat(values: dict[str, Any], outer: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{outer}{name}.")
        elif value is not None:
            yield f"{outer}{name}", value
