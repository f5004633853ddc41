"""What happened in a run of ``fit``, and the file from which the run goes on."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch
from torch import nn

from attn_core.checkpoint import Checkpoint, check_restorable, load_matching, restore, save, training_state
from attn_core.contract import is_number, kind, shown
from attn_core.data import EpochBatches
from attn_core.train import distributed


@dataclass
class History:
    """What happened in a training run.

    ``losses`` holds the mean loss of each step before it, in nats per target token by default. ``validation`` holds one
    dictionary per validation: the ``step`` after which it ran, the training ``seconds`` until then, and what
    ``validate`` returned. ``seconds`` is the training time over all pieces of an interrupted run, without validation
    and checkpoints.
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
            if self.saved is not None:
                _check_run(self.saved, arguments["model"], steps)

    def start(self, model: nn.Module, optimizer: torch.optim.Adam, scaler: torch.amp.GradScaler, seed: int) -> History:
        """Restore what the file holds, random states included, or write the file; returns the history so far."""
        self.training = model, optimizer, scaler
        if self.saved is None:
            history = History()
            self.save(history)  # now, because a folder that cannot be written should not cost an epoch
            return history
        restore(self.saved.tensors, model, optimizer)
        scaler.load_state_dict(self.saved.progress["scaler"])
        history = _history(self.saved)
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


def _history(saved: Checkpoint) -> History:
    progress = saved.progress
    return History(saved.tensors["losses"].tolist(), list(progress["validation"]), progress["seconds"])


def _check_run(saved: Checkpoint, model: nn.Module, steps: int) -> None:
    """All that ``RunFile.start`` puts back is there and fits, so that nothing has changed where something does not."""
    tensors, progress = dict(saved.tensors), saved.progress
    losses = tensors.pop("losses", torch.tensor(0.0))
    if losses.dtype != torch.float64 or losses.dim() != 1 or len(losses) > steps:
        raise ValueError(f"checkpoint: losses: expected at most {steps}, torch.float64 of one axis, got {kind(losses)}")
    check_restorable(tensors, model)
    taken = max((int(x) for name, x in tensors.items() if name.startswith("adam/step/")), default=0)
    if taken > len(losses):
        raise ValueError(f"checkpoint: adam/step: expected at most {len(losses)}, the number of losses, got {taken}")
    records = progress.get("validation")
    if not isinstance(records, list) or not all(isinstance(record, dict) and "step" in record for record in records):
        raise ValueError(f"checkpoint: validation: expected a list of dictionaries with a step, got {shown(records)}")
    seconds, scaler = progress.get("seconds"), progress.get("scaler")
    if not is_number(seconds) or not isinstance(scaler, dict):
        got = f"{shown(seconds)} and {shown(scaler)}"
        raise ValueError(f"checkpoint: seconds and scaler: expected a number and a dictionary, got {got}")


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
            checksum = zlib.crc32(getattr(batch, part.name).numpy(), checksum)
    return {
        "batches' batch_size": batches.batch_size,
        "batches' seed": batches.seed,
        "batches' number": len(batches),
        "batches' checksum": checksum,
        "model's trained parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        **{f"model's {name}": kind(value) for name, value in model.state_dict().items()},
    }
