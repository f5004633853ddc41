"""Collecting attention weights while a model runs.

Nothing stores weights on modules. A module that can show its weights asks ``is_captured(self)`` and, if so, takes
the explicit path and hands them to ``record(self, weights)``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(eq=False)
class _Capture:
    names: dict[nn.Module, str]
    maps: dict[str, list[Tensor]]


_active: ContextVar[tuple[_Capture, ...]] = ContextVar("attn_core_captures", default=())
_open: list[_Capture] = []
"""The captures of all contexts, because torch.compile watches a list but cannot read a context variable."""


@contextmanager
def capture_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the attention weights of every module of ``model`` that runs inside the ``with`` block.

    Yields a dictionary from a module's qualified name (``"decoder"``) to a list with one detached ``(B, H, T, S)``
    tensor for each call. Modules then take their explicit path, which is slower and keeps the whole weight matrix.
    Captures may be nested; each collects for its own model. What checkpointing computes again in a backward pass is not
    collected again, but without ``use_reentrant`` that pass must also run inside the block.
    ``torch.compile(…, fullgraph=True)`` cannot run inside: call the model itself.
    """
    capture = _Capture({module: name for name, module in model.named_modules()}, {})
    token = _active.set((*_active.get(), capture))
    _open.append(capture)
    try:
        yield capture.maps
    finally:
        _open.remove(capture)
        _active.reset(token)


def is_captured(module: nn.Module) -> bool:
    """Whether a surrounding ``capture_attention`` wants the weights of ``module``."""
    # A backward pass, in which checkpointing computes again, may run in a thread that has another context.
    return bool(_open) and any(module in x.names for x in (_open if _in_backward() else _active.get()))


def record(module: nn.Module, weights: Tensor) -> None:
    """Hand the weights ``(B, H, T, S)`` of one call of ``module`` to every capture that wants them."""
    for capture in () if _in_backward() else _active.get():
        if module in capture.names:
            capture.maps.setdefault(capture.names[module], []).append(weights.detach())


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1
