"""Training: one loop for every model that gives logits for a target."""

import math
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from attn_core.checkpoint import Checkpoint, load_matching, own_randomness, restore, save, training_state
from attn_core.contract import check_size, kind
from attn_core.data import Batch, Batches, Vocab
from attn_core.device import default_device


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


def token_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy per true token, in nats; padding counts for nothing.

    Shapes: ``logits (B, T, V)``, ``target (B, T)`` of token ids, ``Vocab.PAD`` where padded; returns a scalar.
    """
    return functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=Vocab.PAD)


def target_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The token loss of the target, each token from the source and the true tokens before it; a scalar, in nats.

    The model is called as ``model(source, source_lengths, target_in)`` and gives logits ``(B, T, V)``.
    """
    return token_loss(model(batch.source, batch.source_lengths, batch.target_in), batch.target_out)


def fit(
    model: nn.Module,
    batches: Batches,
    *,
    epochs: int,
    learning_rate: float = 3e-3,
    warmup: float = 0.05,
    clip: float = 1.0,
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

    Adam, a learning rate that rises over the first ``warmup`` share of the steps and then falls to zero along a
    cosine, gradients clipped to norm ``clip``. The same seed on the same machine gives the same weights; the caller's
    random state is left as it was.

    With ``checkpoint``, a run killed at any moment and called again with the same arguments goes on from that file
    and ends with the same weights, losses and validations, bit for bit, as one never stopped; a finished run returns
    at once. The device may be another one, and the end is then only nearly the same. ``loss`` and ``validate``
    are the caller's to keep the same, with whatever they hold outside the model: a change is not noticed.

    Args:
        model: what ``loss`` can call.
        batches: the training pairs; epoch n is ``batches.epoch(n)``.
        epochs: passes over the pairs.
        learning_rate: the highest one.
        seed: of dropout; the model's first weights and the order of the batches are their makers'.
        device: where to train; by default ``default_device()``. The model stays there.
        precision: float32 or bfloat16, the dtype of products under autocast; by default bfloat16 on CUDA, float32
            elsewhere.
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
    _check_positive("learning_rate", learning_rate)
    _check_positive("clip", clip)
    if not 0.0 <= warmup < 1.0:
        raise ValueError(f"warmup: expected a share in [0, 1), got {warmup}")
    for name, interval in (("validate_every", validate_every), ("checkpoint_every", checkpoint_every)):
        if interval is not None:
            check_size(name, interval)
    if precision not in (None, torch.float32, torch.bfloat16):
        raise ValueError(f"precision: expected torch.float32 or torch.bfloat16, got {precision!r}")
    if checkpoint is not None and not isinstance(checkpoint, Path | str):
        raise ValueError(f"checkpoint: expected a path, got {kind(checkpoint)}")
    device = torch.device(device) if device is not None else default_device()
    steps = epochs * len(batches)
    validate_every, checkpoint_every = validate_every or len(batches), checkpoint_every or len(batches)
    settings: dict[str, Any] = {
        "epochs": epochs,
        "learning_rate": learning_rate,
        "warmup": warmup,
        "clip": clip,
        "seed": seed,
        "precision": precision and str(precision),
        "validate_every": validate_every if validate else None,
    }
    path = saved = None
    if checkpoint is not None:
        path = Path(checkpoint)
        settings |= _identity(model, batches)
        saved = load_matching(path, settings)
    if precision is None:
        precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=device.type in ("cuda", "cpu"))
    history = History()
    mode = model.training
    try:
        with own_randomness(seed):
            if saved is not None:
                history = _resumed(saved, model, optimizer)
            elif path is not None:  # at once, so that a folder that cannot be written costs no epoch
                _keep(path, settings, model, optimizer, history)
            done = len(history.losses)
            model.train()
            with tqdm(total=steps, initial=done, disable=not progress, unit="step", leave=False) as bar:
                clock = time.perf_counter()
                for step, batch in enumerate(_remaining(batches, epochs, done), start=done + 1):
                    for group in optimizer.param_groups:
                        group["lr"] = learning_rate * _cosine(step - 1, steps, warmup)
                    history.losses.append(train_step(model, batch.to(device), loss, optimizer, clip, precision))
                    history.seconds += time.perf_counter() - clock
                    bar.update()
                    if validate is not None and step % validate_every == 0:
                        found = _evaluated(model, validate)
                        history.validation.append({"step": float(step), "seconds": history.seconds, **found})
                        bar.set_postfix(found)
                    if path is not None and (step % checkpoint_every == 0 or step == steps):
                        _keep(path, settings, model, optimizer, history)
                    clock = time.perf_counter()
    except FloatingPointError as error:
        raise FloatingPointError(f"{error} at step {len(history.losses) + 1}") from None
    finally:
        model.train(mode)
    return history


def train_step(
    model: nn.Module,
    batch: Batch,
    loss: Callable[[nn.Module, Batch], Tensor],
    optimizer: torch.optim.Optimizer,
    clip: float,
    precision: torch.dtype,
) -> float:
    """One step of ``fit``: the loss before it. ``batch`` is on the model's device; the rest as in ``fit``.

    Raises:
        ValueError: the loss is no scalar tensor.
        FloatingPointError: the loss or its gradient is infinite or NaN; no weight has changed.
    """
    with torch.autocast(batch.source.device.type, dtype=precision, enabled=precision != torch.float32):
        value = loss(model, batch)
    if not isinstance(value, Tensor) or value.dim() != 0:
        raise ValueError(f"loss: expected a scalar tensor, got {kind(value)}")
    optimizer.zero_grad(set_to_none=True)
    value.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
    for name, number in (("loss", value.item()), ("gradient's norm", norm.item())):
        if not math.isfinite(number):
            raise FloatingPointError(f"the {name} became {number}")
    optimizer.step()
    return value.item()


def _remaining(batches: Batches, epochs: int, done: int) -> Iterator[Batch]:
    """The batches of all epochs but for the first ``done``."""
    first, within = divmod(done, len(batches))
    for epoch in range(first, epochs):
        yield from islice(batches.epoch(epoch), within if epoch == first else 0, None)


def _identity(model: nn.Module, batches: Batches) -> dict[str, Any]:
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


def _resumed(saved: Checkpoint, model: nn.Module, optimizer: torch.optim.Adam) -> History:
    restore(saved.tensors, model, optimizer)
    return History(losses=saved.tensors["losses"].tolist(), **saved.progress)


def _keep(
    path: Path, settings: dict[str, Any], model: nn.Module, optimizer: torch.optim.Adam, history: History
) -> None:
    losses = torch.tensor(history.losses, dtype=torch.float64)
    tensors = {"losses": losses, **training_state(model, optimizer)}
    save(path, Checkpoint(tensors, settings, {"validation": history.validation, "seconds": history.seconds}))


def _evaluated(model: nn.Module, validate: Callable[[nn.Module], dict[str, float]]) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        found = validate(model)
    model.train()
    return found


def _cosine(step: int, steps: int, warmup: float) -> float:
    """The share of the highest learning rate at ``step``."""
    rising = max(1, round(warmup * steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}: expected a finite number above 0, got {value}")
