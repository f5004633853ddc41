"""Evaluation mode for a while, and then the mode that each module was in."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

_switched: dict[nn.Module, tuple[bool, set[object]]] = {}
"""The mode in which each evaluated module was before, and its users: one for each open block."""

_switching = threading.RLock()  # the garbage collector may leave a block while its thread enters another


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """Evaluation mode inside the block, for a model or for a list of modules. Other objects have no mode.

    Several threads may evaluate models that share modules: the last one to leave restores a module's mode.
    """
    modules = model if isinstance(model, list) else list(model.modules()) if isinstance(model, nn.Module) else []
    user = object()
    try:
        with _switching:
            if not _switched and not any(module.training for module in modules):
                modules = []  # there is nothing to restore
            for module in modules:
                _switched.setdefault(module, (module.training, set()))[1].add(user)
                module.training = False
        yield
    finally:
        try:
            _leave(user, modules)
        except BaseException:  # an interrupt on the way out; leaving twice does no harm
            _leave(user, modules)
            raise


def _leave(user: object, modules: list[nn.Module]) -> None:
    with _switching:
        for module in modules:
            mode, users = _switched.get(module, (module.training, {user}))
            users.discard(user)
            if not users:
                module.training = mode
                _switched.pop(module, None)
