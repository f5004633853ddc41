"""The checks of ``fit``'s arguments."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from attn_book.data import EpochBatches
from attn_book.train import distributed
from attn_core.contract import check_integer, check_number, check_share, kind


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Check each argument of ``fit``, given by name, and whether the model and the loss allow to split a batch.

    Raises:
        ValueError: if one is not of its kind or out of its range; if the loss needs the whole batch, and ``accumulate``
            or several processes would split it; if the model has batch normalisation, and several processes would.
    """
    for name in ("epochs", "accumulate"):
        check_integer(name, arguments[name])
    for name in ("learning_rate", "clip"):
        check_number(name, arguments[name])
    check_share("warmup", arguments["warmup"])
    check_integer("seed", arguments["seed"], at_least=0, at_most=2**62)
    for name in ("validate_every", "checkpoint_every"):
        if arguments[name] is not None:
            check_integer(name, arguments[name])
    expected_types: tuple[tuple[str, Any, str], ...] = (
        ("model", nn.Module, "an nn.Module"),
        ("batches", EpochBatches, "EpochBatches, for example Batches"),
        ("loss", Callable, "a function"),
        ("schedule", Callable | None, "a function"),
        ("validate", Callable | None, "a function"),
        ("checkpoint", Path | str | None, "a path"),
    )
    for name, types, expected in expected_types:
        if not isinstance(arguments[name], types):
            raise ValueError(f"{name}: expected {expected}, got {kind(arguments[name])}")
    if not any(parameter.requires_grad for parameter in arguments["model"].parameters()):
        raise ValueError("model: expected a parameter that requires a gradient, got none")
    processes, accumulate, loss = distributed.size(), arguments["accumulate"], arguments["loss"]
    if getattr(loss, "needs_whole_batch", False) and max(accumulate, processes) > 1:
        raise ValueError(
            f"loss: expected a sum over the examples of a batch, to train with accumulate={accumulate} and {processes} "
            f"processes, got {getattr(loss, '__qualname__', kind(loss))}, which needs the whole batch"
        )
    for name, layer in arguments["model"].named_modules():
        if processes > 1 and isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"model: expected no batch normalisation in {processes} processes, got {kind(layer)} {name}"
            )
