"""Training: one loop for every model with a loss."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attn_book.data import EpochBatches
from attn_book.data.batches import AnyBatch
from attn_book.train import distributed
from attn_book.train.checkpoint import own_randomness
from attn_book.train.checks import check_arguments
from attn_book.train.losses import Loss, sum_and_count, target_loss
from attn_book.train.precision import Precision
from attn_book.train.resume import History, RunFile
from attn_book.train.schedules import Schedule, cosine
from attn_core.contract import kind
from attn_core.device import default_device
from attn_core.evaluation import evaluating


def fit(
    model: nn.Module,
    batches: EpochBatches[Any],
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
    loss: Loss = target_loss,
    validate: Callable[[nn.Module], dict[str, float]] | None = None,
    validate_every: int | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: int | None = None,
    progress: bool = True,
) -> History:
    """Train ``model`` in place with Adam, gradients clipped to norm ``clip``, and return what happened.

    By default the learning rate rises over the first ``warmup`` share of the steps, and then falls to zero along a
    cosine. The same seed on the same machine gives the same parameters. The caller's random state is left as it was.

    If ``torch.distributed`` is set up, the processes train one model together, and all call ``fit`` alike. Each
    computes its rows of every batch, and a step is the one that a single process would have made of the whole batch, up
    to rounding and dropout. The first process alone validates, and reads and writes the checkpoint; what it returns or
    raises, all do. Any number of processes can go on from a checkpoint.

    With ``checkpoint``, a run that was killed at any moment and is called again with the same arguments goes on from
    that file, and ends with the same parameters, losses and validations, bit for bit, as one that was never stopped. A
    finished run returns at once. On another device the end is only nearly the same. The caller must keep ``loss`` and
    ``validate`` the same, with all they hold outside the model, because a change there is not noticed.

    Args:
        model: what ``loss`` can call.
        batches: the training data; epoch n is ``batches.epoch(n)``.
        epochs: passes over the data.
        learning_rate: the highest one.
        schedule: the learning rate of each step, counted from 0, instead of ``learning_rate`` and ``warmup``.
        accumulate: batches that make one step together, each weighted by its count (of target tokens, for example).
        seed: of dropout; the model's first parameters and the order of the batches have seeds of their own.
        device: where to train, by default ``default_device()``. The model stays there.
        precision: float32, bfloat16 or float16, the dtype of products under autocast; by default bfloat16 on CUDA, and
            float32 elsewhere. In float16 a step whose gradients overflow is left out.
        loss: ``loss(model, batch)`` returns the sum to make small and the count of what it sums, target tokens by
            default.
        validate: called with the model in evaluation mode; what it returns goes into the history.
        validate_every: steps between validations, by default one epoch.
        checkpoint: the file to go on from, if it exists, and to write.
        checkpoint_every: steps between checkpoints, by default one epoch. The start and the end are always written.
        progress: whether to show a progress bar on standard error.

    Raises:
        ValueError: if a setting is out of range, ``loss`` returns something else, or ``checkpoint`` is damaged or of a
            run with another model, other data or other settings; if ``accumulate`` or several processes would split a
            batch that ``loss`` needs whole (``pair_loss``, for example), or several processes one for batch
            normalisation. No parameter has changed then, unless ``loss`` or ``validate`` returned something else later.
        OSError: if the checkpoint cannot be read or written.
        FloatingPointError: if the loss or its gradient became infinite or NaN; the message says at which step. The
            parameters are those before it, and the last checkpoint stands.
    """
    arguments = locals().copy()  # the settings by name, for their checks and for the checkpoint
    from tqdm import tqdm  # models and losses can be imported without it

    check_arguments(arguments)
    device = torch.device(device) if device is not None else default_device()
    mixed = Precision(precision, device)
    steps_per_epoch = -(-len(batches) // accumulate)
    steps = epochs * steps_per_epoch
    validate_every, checkpoint_every = validate_every or steps_per_epoch, checkpoint_every or steps_per_epoch
    rate = schedule or cosine(steps, peak=learning_rate, warmup=warmup)
    run = RunFile(arguments | {"validate_every": validate_every}, steps)

    modes = [(module, module.training) for module in model.modules()]
    model.to(device)
    trained, trained_loss = distributed.wrap_ddp(model, loss, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=device.type in ("cuda", "cpu"))
    history = History()
    try:
        with own_randomness(seed + distributed.rank()):
            history = run.start(model, optimizer, mixed.scaler, seed)
            done, silent = len(history.losses), not progress or distributed.rank() > 0
            model.train()
            with tqdm(total=steps, initial=done, disable=silent, unit="step", leave=False) as bar:
                clock = time.perf_counter()
                for step, parts in enumerate(_remaining(batches, epochs, accumulate, done), start=done + 1):
                    for group in optimizer.param_groups:
                        group["lr"] = rate(step - 1)
                    parts = [batch.to(device) for batch in parts]
                    history.losses.append(train_step(trained, parts, trained_loss, optimizer, mixed, clip=clip))
                    history.seconds += time.perf_counter() - clock
                    bar.update()
                    if validate is not None and step % validate_every == 0:
                        scores = distributed.broadcast_from_rank0(partial(_validate, model, validate))
                        history.validation.append({"step": float(step), "seconds": history.seconds, **scores})
                        bar.set_postfix(scores)
                    if step % checkpoint_every == 0 or step == steps:
                        run.save(history)
                    clock = time.perf_counter()
    except FloatingPointError as error:
        raise FloatingPointError(f"{error} at step {len(history.losses) + 1}") from None
    finally:
        for module, training in modes:
            module.training = training
    return history


def train_step(
    model: nn.Module,
    batches: Sequence[AnyBatch],
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    *,
    clip: float = 1.0,
) -> float:
    """Take one step on batches, on the model's device, that count as one; return their mean loss before it.

    Raises:
        ValueError: if ``loss`` returns something else than a scalar tensor and a number.
        FloatingPointError: if the loss is infinite or NaN or, unless it is scaled, its gradient is; no parameter has
            changed then.
    """
    scaler = precision.scaler
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros(2, device=precision.device)  # over all batches and processes: the sum and its count
    for number, batch in enumerate(batches):
        part, weight = distributed.shard(batch)
        is_last = number == len(batches) - 1
        with nullcontext() if is_last else distributed.no_sync(model):
            with precision.autocast():
                value, count = sum_and_count(loss(model, part))
            total = total + distributed.all_reduce_sum(weight * torch.stack([value.detach(), count]))
            if number == 0:
                unit = total[1] + (total[1] == 0)
            # DistributedDataParallel gives the mean over the processes, where their sum is needed.
            scaler.scale(value * (weight * distributed.size() / unit)).backward()
    scaler.unscale_(optimizer)
    if len(batches) > 1:  # the gradients are those of the sum divided by the first batch's count
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad *= unit / total[1]
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
    mean = (total[0] / total[1]).item()
    if not math.isfinite(mean):
        raise FloatingPointError(f"the loss became {mean}")
    if not scaler.is_enabled() and not math.isfinite(norm.item()):
        raise FloatingPointError(f"the gradient's norm became {norm.item()}")
    scaler.step(optimizer)
    scaler.update()
    return mean


def _remaining(batches: EpochBatches[Any], epochs: int, accumulate: int, done: int) -> Iterator[list[Any]]:
    """The batches of all steps but the first ``done``, with those of a step together."""
    first, within = divmod(done, -(-len(batches) // accumulate))
    for epoch in range(first, epochs):
        rest = islice(batches.epoch(epoch), within * accumulate if epoch == first else 0, None)
        while parts := list(islice(rest, accumulate)):
            yield parts


def _validate(model: nn.Module, validate: Callable[[nn.Module], dict[str, float]]) -> dict[str, float]:
    with torch.no_grad(), evaluating(model):
        scores = validate(model)
    if not isinstance(scores, Mapping):
        raise ValueError(f"validate: expected a function that returns a dictionary of numbers, got {kind(scores)}")
    return scores
