"""Evaluation mode for as long as somebody evaluates a model, and then the mode that each module was in."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

_switched: dict[nn.Module, tuple[bool, set[object]]] = {}
"""Of each module that someone evaluates: its mode before, and who evaluates it."""

_switching = threading.RLock()  # the garbage collector may leave a block while its thread enters another


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """Evaluation mode inside, for a model with its modules, or for the modules of a list. What is neither has no mode.

    Several threads may evaluate models that share modules: the last one to leave puts a module's mode back.
    """
    modules = model if isinstance(model, list) else list(model.modules()) if isinstance(model, nn.Module) else []
    user = object()
    try:
        with _switching:
            if not _switched and not any(module.training for module in modules):
                modules = []  # nothing to put back, and nobody who would put a mode back meanwhile
            for module in modules:
                _switched.setdefault(module, (module.training, set()))[1].add(user)
                module.training = False
        yield
    finally:
        try:
            _leave(user, modules)
        except BaseException:  # an interrupt on the way out; to leave twice does no harm
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
