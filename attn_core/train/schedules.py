"""Learning rates over the steps of a run: functions from a step, counted from 0, to its rate."""

import math
from collections.abc import Callable

from attn_core.contract import check_integer, is_number, shown

Schedule = Callable[[int], float]


def cosine(steps: int, *, peak: float, warmup: float = 0.05) -> Schedule:
    """A rate that rises to ``peak`` over the first ``warmup`` share of the steps, then falls to zero along a cosine.

    Raises:
        ValueError: if ``steps`` is below 1, ``peak`` is not above 0, or ``warmup`` lies outside [0, 1).

    Source: Loshchilov and Hutter 2017 (the cosine).
    """
    check_integer("steps", steps)
    check_positive("peak", peak)
    check_warmup(warmup)
    rising = max(1, round(warmup * steps))

    def rate(step: int) -> float:
        if step < rising:
            return peak * ((step + 1) / rising)
        return peak * (0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising))))

    return rate


def check_positive(name: str, value: float) -> None:
    """The number called ``name`` is finite and above 0."""
    if not (is_number(value) and math.isfinite(value) and value > 0):
        raise ValueError(f"{name}: expected a finite number above 0, got {shown(value)}")


def check_warmup(warmup: float) -> None:
    """``warmup`` is a share of the steps, below all of them."""
    if not is_number(warmup) or not 0.0 <= warmup < 1.0:
        raise ValueError(f"warmup: expected a share in [0, 1), got {shown(warmup)}")
