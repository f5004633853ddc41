"""Learning rates over the steps of a run: functions from a step, counted from 0, to its rate."""

import math
from collections.abc import Callable

from attn_core.contract import check_size, is_number, shown

Schedule = Callable[[int], float]


def cosine(steps: int, *, peak: float, warmup: float = 0.05) -> Schedule:
    """Rises to ``peak`` over the first ``warmup`` share of the steps, then falls to zero along a cosine.

    Raises:
        ValueError: ``steps`` below 1, a ``peak`` not above 0, or a ``warmup`` outside [0, 1).

    Source: Loshchilov and Hutter 2017 (the cosine).
    """
    check_size("steps", steps)
    check_positive("peak", peak)
    check_warmup(warmup)
    rising = max(1, round(warmup * steps))

    def rate(step: int) -> float:
        if step < rising:
            return peak * ((step + 1) / rising)
        return peak * (0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising))))

    return rate


def inverse_square_root(model_dim: int, *, warmup_steps: int = 4000, scale: float = 1.0) -> Schedule:
    """The paper's: rises for ``warmup_steps``, then falls with the root of the step; times ``scale``.

    Its peak, at the end of the warm-up, is scale / √(model_dim · warmup_steps).

    Raises:
        ValueError: a size below 1, or a ``scale`` not above 0.

    Source: Vaswani et al. 2017, eq. 3.
    """
    check_size("model_dim", model_dim)
    check_size("warmup_steps", warmup_steps)
    check_positive("scale", scale)

    def rate(step: int) -> float:
        number = step + 1
        return scale * model_dim**-0.5 * min(number**-0.5, number * warmup_steps**-1.5)

    return rate


def check_positive(name: str, value: float) -> None:
    """Check that the number called ``name`` is finite and above 0.

    Raises:
        ValueError: it is not.
    """
    if not (is_number(value) and math.isfinite(value) and value > 0):
        raise ValueError(f"{name}: expected a finite number above 0, got {shown(value)}")


def check_warmup(warmup: float) -> None:
    """Check that ``warmup`` is a share of the steps, below all of them.

    Raises:
        ValueError: it is not.
    """
    if not is_number(warmup) or not 0.0 <= warmup < 1.0:
        raise ValueError(f"warmup: expected a share in [0, 1), got {shown(warmup)}")
