"""Evaluation mode for a while, and then the mode that each module was in."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """Evaluation mode inside the block, for a model or for a list of modules. Other objects have no mode."""
    modules = model if isinstance(model, list) else list(model.modules()) if isinstance(model, nn.Module) else []
    training = [module for module in modules if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True
