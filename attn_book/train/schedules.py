"""Learning rates over the steps of a run: functions from a step, counted from 0, to its rate."""

import math
from collections.abc import Callable

from attn_core.contract import check_integer, check_number, check_share

Schedule = Callable[[int], float]


def cosine(steps: int, *, peak: float, warmup: float = 0.05) -> Schedule:
    """A rate that rises to ``peak`` over the first ``warmup`` share of the steps, then falls to zero along a cosine.

    After ``steps`` steps it stays there.

    Raises:
        ValueError: if ``steps`` is below 1, ``peak`` is not above 0, or ``warmup`` lies outside [0, 1).

    Source: Loshchilov and Hutter 2017 (the cosine).
    """
    check_integer("steps", steps)
    check_number("peak", peak)
    check_share("warmup", warmup)
    rising = max(1, round(warmup * steps))

    def rate(step: int) -> float:
        if step < rising:
            return peak * ((step + 1) / rising)
        fallen = min(1.0, (step - rising) / max(1, steps - rising))  # past the end the cosine would rise again
        return peak * (0.5 * (1 + math.cos(math.pi * fallen)))

    return rate
