"""Training: one loop for every model that gives logits for a target."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from attn_core.contract import check_size
from attn_core.data import Batch, Batches, Vocab
from attn_core.device import default_device


@dataclass
class History:
    """What happened in a training run.

    ``losses`` holds one value per step, in nats per target token; ``validation`` one dictionary per validation: the
    ``step`` after which it ran, the training ``seconds`` until then (validation left out), and what ``validate`` gave.
    ``seconds`` is the whole training time, validation left out.
    """

    losses: list[float] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0


def token_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy per true token, in nats; padding counts for nothing.

    Shapes: ``logits (B, T, V)``, ``target (B, T)`` of token ids, ``Vocab.PAD`` where padded; returns a scalar.
    """
    return functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=Vocab.PAD)


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
    validate: Callable[[nn.Module], dict[str, float]] | None = None,
    validate_every: int | None = None,
    progress: bool = True,
) -> History:
    """Train ``model`` in place on sentence pairs, and return what happened.

    Adam, a learning rate that rises over the first ``warmup`` share of the steps and then falls to zero along a
    cosine, gradients clipped to norm ``clip``. The same seed on the same machine gives the same weights; the caller's
    random state is left as it was.

    Args:
        model: called as ``model(source, source_lengths, target_in)``, gives logits ``(B, T, V)``.
        batches: the training pairs; epoch n is ``batches.epoch(n)``.
        epochs: passes over the pairs.
        learning_rate: the highest one.
        seed: of dropout; the model's first weights and the order of the batches are their makers'.
        device: where to train; by default ``default_device()``. The model stays there.
        precision: float32 or bfloat16, the dtype of products under autocast; by default bfloat16 on CUDA, float32
            elsewhere.
        validate: called with the model in evaluation mode; what it returns goes into the history.
        validate_every: steps between validations; by default one epoch.
        progress: whether to show a progress bar on standard error.

    Raises:
        ValueError: a setting out of range.
        FloatingPointError: the loss or its gradient became infinite or NaN; the message says at which step, and the
            weights are those before it.
    """
    check_size("epochs", epochs)
    _check_positive("learning_rate", learning_rate)
    _check_positive("clip", clip)
    if not 0.0 <= warmup < 1.0:
        raise ValueError(f"warmup: expected a share in [0, 1), got {warmup}")
    if validate_every is not None:
        check_size("validate_every", validate_every)
    device = torch.device(device) if device is not None else default_device()
    if precision is None:
        precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    if precision not in (torch.float32, torch.bfloat16):
        raise ValueError(f"precision: expected torch.float32 or torch.bfloat16, got {precision!r}")
    model.to(device)
    steps = epochs * len(batches)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=device.type in ("cuda", "cpu"))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _cosine(step, steps, warmup))
    history = History()
    interval = validate_every or len(batches)
    mode = model.training
    bar = tqdm(total=steps, disable=not progress, unit="step", leave=False)
    try:
        with bar, _own_randomness(seed):
            model.train()
            clock = time.perf_counter()
            for epoch in range(epochs):
                for batch in batches.epoch(epoch):
                    history.losses.append(_step(model, batch.to(device), optimizer, clip=clip, precision=precision))
                    schedule.step()
                    bar.update()
                    if validate is not None and len(history.losses) % interval == 0:
                        history.seconds += time.perf_counter() - clock
                        found = _evaluated(model, validate)
                        step = float(len(history.losses))
                        history.validation.append({"step": step, "seconds": history.seconds, **found})
                        bar.set_postfix(found)
                        clock = time.perf_counter()
            history.seconds += time.perf_counter() - clock
    except FloatingPointError as error:
        raise FloatingPointError(f"{error} at step {len(history.losses) + 1}") from None
    finally:
        model.train(mode)
    return history


def _step(
    model: nn.Module, batch: Batch, optimizer: torch.optim.Optimizer, *, clip: float, precision: torch.dtype
) -> float:
    with torch.autocast(batch.source.device.type, dtype=precision, enabled=precision != torch.float32):
        logits = model(batch.source, batch.source_lengths, batch.target_in)
    loss = token_loss(logits, batch.target_out)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
    for name, value in (("loss", loss.item()), ("gradient's norm", norm.item())):
        if not math.isfinite(value):
            raise FloatingPointError(f"the {name} became {value}")
    optimizer.step()
    return loss.item()


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """Seed every device's generator, and give the caller's states back afterwards."""
    apple = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    try:
        with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
            torch.manual_seed(seed)
            yield
    finally:
        if apple is not None:
            torch.mps.set_rng_state(apple)


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
