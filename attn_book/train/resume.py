"""What happened in a run of ``fit``, and the file from which the run goes on."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch
from torch import nn

from attn_book.data import EpochBatches
from attn_book.train import distributed
from attn_book.train.checkpoint import Checkpoint, load_matching, restore, save, training_state
from attn_core.contract import kind


@dataclass
class History:
    """What happened in a training run.

    ``losses`` holds the mean loss of each step's batch before the step, in nats per target token by default.
    ``validation`` holds one dictionary per validation: the ``step`` after which it ran, the training ``seconds`` until
    then, and what ``validate`` returned. ``seconds`` is the training time over all pieces of an interrupted run,
    without validation and checkpoints.
    """

    losses: list[float] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0


class RunFile:
    """The checkpoint of one run, read for all processes and written by the first; without a path, nothing.

    Raises:
        ValueError: if the file is damaged, or of a run with another model, other data or other settings.
        OSError: if it cannot be read.
    """

    def __init__(self, arguments: Mapping[str, Any], steps: int) -> None:
        self.path = arguments["checkpoint"]
        self.saved: Checkpoint | None = None
        if self.path is not None:
            self.settings = _settings(arguments, steps) | _identity(arguments["model"], arguments["batches"])
            self.saved = distributed.broadcast_from_rank0(partial(load_matching, self.path, self.settings))

    def start(self, model: nn.Module, optimizer: torch.optim.Adam, scaler: torch.amp.GradScaler, seed: int) -> History:
        """Restore what the file holds, random states included, or write the file; returns the history so far."""
        self.training = model, optimizer, scaler
        if self.saved is None:
            history = History()
            self.save(history)  # now, because a folder that cannot be written should not cost an epoch
            return history
        restore(self.saved.tensors, model, optimizer)
        losses, progress = self.saved.tensors["losses"].tolist(), self.saved.progress
        history = History(losses, list(progress["validation"]), progress["seconds"])
        scaler.load_state_dict(progress["scaler"])
        if distributed.rank() > 0:  # the random state in the file is the first process's, and each needs its own
            torch.manual_seed(seed + distributed.rank() + len(history.losses) * distributed.size())
        return history

    def save(self, history: History) -> None:
        """Write all that the run needs to go on from here, if there is a path."""
        if self.path is None:
            return
        model, optimizer, scaler = self.training
        losses = torch.tensor(history.losses, dtype=torch.float64)
        tensors = {"losses": losses, **training_state(model, optimizer)}
        progress = {"validation": history.validation, "seconds": history.seconds, "scaler": scaler.state_dict()}
        distributed.broadcast_from_rank0(partial(save, self.path, Checkpoint(tensors, self.settings, progress)))


def _settings(arguments: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """What has to stay the same when a run goes on, in JSON's types; three of its rates stand for a schedule."""
    names = ("epochs", "learning_rate", "warmup", "clip", "seed", "accumulate")
    schedule, precision = arguments["schedule"], arguments["precision"]
    return {name: arguments[name] for name in names} | {
        "precision": precision and str(precision),
        "schedule": schedule and [schedule(step) for step in (0, steps // 2, steps - 1)],
        "validate_every": arguments["validate_every"] if arguments["validate"] else None,
    }


def _identity(model: nn.Module, batches: EpochBatches[Any]) -> dict[str, Any]:
    """What tells this model and these data from others."""
    checksum = 0
    for batch in batches.epoch(0):
        for part in fields(batch):
            numbers = getattr(batch, part.name).detach().cpu().contiguous().reshape(-1)
            checksum = zlib.crc32(numbers.view(torch.uint8).numpy(), checksum)
    return {
        "batches' batch_size": batches.batch_size,
        "batches' seed": batches.seed,
        "batches' number": len(batches),
        "batches' checksum": checksum,
        "model's trained parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        **{f"model's {name}": kind(value) for name, value in model.state_dict().items()},
    }
