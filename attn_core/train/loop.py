"""Training: one loop for every model that gives logits for a target."""

import math
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from tqdm import tqdm

from attn_core.checkpoint import Checkpoint, load_matching, own_randomness, restore, save, training_state
from attn_core.contract import check_size, kind, shown
from attn_core.data import Batch, Vocab
from attn_core.device import default_device
from attn_core.train import distributed
from attn_core.train.losses import target_loss
from attn_core.train.schedules import Schedule, check_positive, check_warmup, cosine


@dataclass
class History:
    """What happened in a training run.

    ``losses`` holds one value per step, as ``loss`` gave it: in nats per target token by default; ``validation`` one
    dictionary per validation: the ``step`` after which it ran, the training ``seconds`` until then, and what
    ``validate`` gave. ``seconds`` is the whole training time, over all pieces of an interrupted run; validation and
    checkpoints are left out.
    """

    losses: list[float] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0


class TrainingBatches(Protocol):
    """What ``fit`` needs of its data, as ``Batches`` and ``DrawingBatches`` have it; the order may hang on ``seed``."""

    batch_size: int
    seed: int | None

    def __len__(self) -> int: ...

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch, as many as the length says; the same for the same number."""


def fit(
    model: nn.Module,
    batches: TrainingBatches,
    *,
    epochs: int,
    learning_rate: float = 3e-3,
    warmup: float = 0.05,
    schedule: Schedule | None = None,
    clip: float = 1.0,
    accumulate: int = 1,
    seed: int = 0,
    device: torch.device | str | None = None,
    precision: torch.dtype | None = None,
    loss: Callable[[nn.Module, Batch], Tensor] = target_loss,
    validate: Callable[[nn.Module], dict[str, float]] | None = None,
    validate_every: int | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: int | None = None,
    progress: bool = True,
) -> History:
    """Train ``model`` in place on sentence pairs, and return what happened.

    Adam, gradients clipped to norm ``clip``, and by default a learning rate that rises over the first ``warmup`` share
    of the steps and then falls to zero along a cosine. The same seed on the same machine gives the same weights; the
    caller's random state is left as it was.

    Where ``torch.distributed`` is set up, the processes train one model together, all called with the same arguments:
    each takes its rows of every batch, and a step is the one that a single process would have made of the whole batch,
    up to rounding and dropout. The first process alone validates, and reads and writes the checkpoint; what it finds
    or raises there, all do. Any number of processes can go on from a checkpoint.

    With ``checkpoint``, a run killed at any moment and called again with the same arguments goes on from that file
    and ends with the same weights, losses and validations, bit for bit, as one never stopped; a finished run returns
    at once. The device may be another one, and the end is then only nearly the same. ``loss`` and ``validate``
    are the caller's to keep the same, with whatever they hold outside the model: a change is not noticed.

    Args:
        model: what ``loss`` can call.
        batches: the training pairs; epoch n is ``batches.epoch(n)``.
        epochs: passes over the pairs.
        learning_rate: the highest one.
        schedule: the learning rate of each step, counted from 0, in the place of ``learning_rate`` and ``warmup``.
        accumulate: batches that make one step together, each weighted by its target tokens.
        seed: of dropout; the model's first weights and the order of the batches are their makers'.
        device: where to train; by default ``default_device()``. The model stays there.
        precision: float32, bfloat16 or float16, the dtype of products under autocast; by default bfloat16 on CUDA,
            float32 elsewhere. In float16 the loss is scaled, and a step whose gradients overflow is left out.
        loss: called as ``loss(model, batch)`` under autocast, gives the scalar to make small.
        validate: called with the model in evaluation mode; what it returns goes into the history.
        validate_every: steps between validations; by default one epoch.
        checkpoint: the file to go on from, if it exists, and to write.
        checkpoint_every: steps between checkpoints; by default one epoch. The start and the end are always written.
        progress: whether to show a progress bar on standard error.

    Raises:
        ValueError: a setting out of range; a loss that is no scalar; a ``checkpoint`` that is damaged, or of a run
            with another model, other data or other settings (the message names them); then no weight has changed.
        OSError: the checkpoint cannot be read or written.
        FloatingPointError: the loss or its gradient became infinite or NaN; the message says at which step, the
            weights are those before it, and the last checkpoint stands.
    """
    check_size("epochs", epochs)
    check_size("accumulate", accumulate)
    check_positive("learning_rate", learning_rate)
    check_positive("clip", clip)
    check_warmup(warmup)
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: expected an nn.Module, got {kind(model)}")
    if not hasattr(batches, "epoch"):
        raise ValueError(f"batches: expected some with epoch(number), as Batches, got {kind(batches)}")
    if not isinstance(seed, int) or isinstance(seed, bool) or abs(seed) >= 2**62:
        raise ValueError(f"seed: expected an integer of 62 bits, got {shown(seed)}")
    for what, function in (("schedule", schedule), ("loss", loss), ("validate", validate)):
        if function is not None and not callable(function):
            raise ValueError(f"{what}: expected a function, got {kind(function)}")
    for name, interval in (("validate_every", validate_every), ("checkpoint_every", checkpoint_every)):
        if interval is not None:
            check_size(name, interval)
    if precision not in (None, torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"precision: expected torch.float32, torch.bfloat16 or torch.float16, got {precision!r}")
    if checkpoint is not None and not isinstance(checkpoint, Path | str):
        raise ValueError(f"checkpoint: expected a path, got {kind(checkpoint)}")
    device = torch.device(device) if device is not None else default_device()
    steps_an_epoch = -(-len(batches) // accumulate)
    steps = epochs * steps_an_epoch
    validate_every, checkpoint_every = validate_every or steps_an_epoch, checkpoint_every or steps_an_epoch
    rate = cosine(steps, peak=learning_rate, warmup=warmup) if schedule is None else schedule
    settings: dict[str, Any] = {
        "epochs": epochs,
        "learning_rate": learning_rate,
        "warmup": warmup,
        "clip": clip,
        "seed": seed,
        "precision": precision and str(precision),
        "accumulate": accumulate,
        "schedule": schedule and [schedule(step) for step in (0, steps // 2, steps - 1)],
        "validate_every": validate_every if validate else None,
    }
    path = saved = None
    if checkpoint is not None:
        path = Path(checkpoint)
        settings |= _identity(model, batches)
        saved = distributed.broadcast_from_rank0(partial(load_matching, path, settings))
    if precision is None:
        precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    model.to(device)
    trained, trained_loss = distributed.wrapped(model, loss, device)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == torch.float16)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=device.type in ("cuda", "cpu"))
    history = History()
    mode = model.training
    try:
        with own_randomness(seed + distributed.rank()):
            if saved is not None:
                history = _resumed(saved, model, optimizer, scaler, seed)
            elif path is not None:  # at once, so that a folder that cannot be written costs no epoch
                _keep(path, settings, model, optimizer, scaler, history)
            done = len(history.losses)
            model.train()
            silent = not progress or distributed.rank() > 0
            with tqdm(total=steps, initial=done, disable=silent, unit="step", leave=False) as bar:
                clock = time.perf_counter()
                for step, parts in enumerate(_remaining(batches, epochs, accumulate, done), start=done + 1):
                    for group in optimizer.param_groups:
                        group["lr"] = rate(step - 1)
                    parts = [batch.to(device) for batch in parts]
                    value = train_step(trained, parts, trained_loss, optimizer, clip, precision, scaler)
                    history.losses.append(value)
                    history.seconds += time.perf_counter() - clock
                    bar.update()
                    if validate is not None and step % validate_every == 0:
                        found = distributed.broadcast_from_rank0(partial(_evaluated, model, validate))
                        history.validation.append({"step": float(step), "seconds": history.seconds, **found})
                        bar.set_postfix(found)
                    if path is not None and (step % checkpoint_every == 0 or step == steps):
                        _keep(path, settings, model, optimizer, scaler, history)
                    clock = time.perf_counter()
    except FloatingPointError as error:
        raise FloatingPointError(f"{error} at step {len(history.losses) + 1}") from None
    finally:
        model.train(mode)
    return history


def train_step(
    model: nn.Module,
    batches: Sequence[Batch],
    loss: Callable[[nn.Module, Batch], Tensor],
    optimizer: torch.optim.Optimizer,
    clip: float,
    precision: torch.dtype,
    scaler: torch.amp.GradScaler,
) -> float:
    """One step of ``fit`` on batches that count as one: the loss before it. They are on the model's device.

    Raises:
        ValueError: the loss is no scalar tensor.
        FloatingPointError: the loss or, but for a scaled one, its gradient is infinite or NaN; no weight has changed.
    """
    device = batches[0].source.device
    counts = torch.stack([(batch.target_out != Vocab.PAD).sum() for batch in batches])
    total = torch.zeros((), device=device)
    optimizer.zero_grad(set_to_none=True)
    for number, (batch, weight) in enumerate(zip(batches, counts / counts.sum(), strict=True)):
        part = distributed.share(batch)
        # What this process's rows weigh in the whole. It takes part even without rows, as all have to.
        own = weight * (part.target_out != Vocab.PAD).sum() / (batch.target_out != Vocab.PAD).sum()
        part = part if len(part) else batch.rows(slice(0, 1))
        last = number == len(batches) - 1
        with nullcontext() if last else distributed.unsynchronised(model):
            with torch.autocast(device.type, dtype=precision, enabled=precision != torch.float32):
                value = loss(model, part)
            if not isinstance(value, Tensor) or value.dim() != 0:
                raise ValueError(f"loss: expected a scalar tensor, got {kind(value)}")
            # Gradients become the mean over the processes; wanted is their sum.
            scaler.scale(value * (own * distributed.size()).to(value.dtype)).backward()
        total = total + own * value.detach()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
    found = distributed.all_reduce_sum(total).item()
    numbers = {"loss": found} if scaler.is_enabled() else {"loss": found, "gradient's norm": norm.item()}
    for name, seen in numbers.items():
        if not math.isfinite(seen):
            raise FloatingPointError(f"the {name} became {seen}")
    scaler.step(optimizer)
    scaler.update()
    return found


def _remaining(batches: TrainingBatches, epochs: int, accumulate: int, done: int) -> Iterator[list[Batch]]:
    """The batches of all steps but for the first ``done``, those of a step together."""
    first, within = divmod(done, -(-len(batches) // accumulate))
    for epoch in range(first, epochs):
        left = islice(batches.epoch(epoch), within * accumulate if epoch == first else 0, None)
        while step := list(islice(left, accumulate)):
            yield step


def _identity(model: nn.Module, batches: TrainingBatches) -> dict[str, Any]:
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


def _resumed(
    saved: Checkpoint, model: nn.Module, optimizer: torch.optim.Adam, scaler: torch.amp.GradScaler, seed: int
) -> History:
    restore(saved.tensors, model, optimizer)
    progress = dict(saved.progress)
    scaler.load_state_dict(progress.pop("scaler"))
    history = History(losses=saved.tensors["losses"].tolist(), **progress)
    if distributed.rank() > 0:  # the file has the first process's randomness; no two draw the same
        torch.manual_seed(seed + distributed.rank() + len(history.losses) * distributed.size())
    return history


def _keep(
    path: Path,
    settings: dict[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Adam,
    scaler: torch.amp.GradScaler,
    history: History,
) -> None:
    losses = torch.tensor(history.losses, dtype=torch.float64)
    tensors = {"losses": losses, **training_state(model, optimizer)}
    progress = {"validation": history.validation, "seconds": history.seconds, "scaler": scaler.state_dict()}
    checkpoint = Checkpoint(tensors, settings, progress)
    distributed.broadcast_from_rank0(partial(save, path, checkpoint))


def _evaluated(model: nn.Module, validate: Callable[[nn.Module], dict[str, float]]) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        found = validate(model)
    model.train()
    return found
