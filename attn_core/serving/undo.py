"""What a step changes, so that it can be taken back: a step either happens or it does not, whatever interrupts it."""

from collections.abc import Iterable
from typing import Any

import torch


class Undo:
    """Copies of what objects hold, to be put back.

    An interrupt may come between any two instructions, also while something is put back. So nothing that was copied is
    ever changed, and ``restore`` may be called again until it has returned.
    """

    def __init__(self, *objects: object, generators: Iterable[torch.Generator] = ()) -> None:
        self._held: list[tuple[object, dict[str, Any]]] = []
        self._random = [(generator, generator.get_state()) for generator in generators]
        for one in objects:
            self.keep(one, vars(one))

    def keep(self, one: object, names: Iterable[str]) -> None:
        """Copy these attributes, and the lists and dictionaries among them."""
        self._held.append((one, {name: _copied(getattr(one, name)) for name in names}))

    def restore(self) -> None:
        """Put everything back. A list stays the object that it is, since callers may hold one."""
        for one, held in self._held:
            for name, value in held.items():
                now = getattr(one, name)
                if isinstance(value, list) and isinstance(now, list):
                    now[:] = value
                else:
                    setattr(one, name, _copied(value))
        for generator, state in self._random:
            generator.set_state(state)


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return value[:]
    if isinstance(value, dict):
        lists = isinstance(next(iter(value.values()), None), list)
        return {key: items[:] for key, items in value.items()} if lists else value.copy()
    return value
