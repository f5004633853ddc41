"""How a result differs from what was expected, in a sentence."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def difference(found: Any, wanted: Any, close: float) -> str | None:
    """Say how ``found`` differs from ``wanted``: kind, shape, dtype, NaN, then the first entry; None if it does not.

    Both are tensors, numbers, strings or None, or tuples, lists and dicts of such. Numbers may be off by ``close``, as
    a share of the greatest entry expected (and of 1, if that is more). A number may come as a tensor of one entry.
    """
    if found is None and wanted is not None:
        return "It returns None. Is there a return?"
    if isinstance(wanted, Tensor):
        return _tensors(found, wanted, close)
    if isinstance(wanted, bool) or not isinstance(wanted, int | float):
        return _others(found, wanted, close)
    if isinstance(found, Tensor) and found.numel() == 1:
        found = found.item()
    if isinstance(found, bool) or not isinstance(found, int | float):
        return f"It returns {_kind(found)}; expected a number."
    if found == wanted or (math.isnan(found) and math.isnan(wanted)):
        return None
    if abs(found - wanted) <= close * max(1.0, abs(wanted)):
        return None
    return f"It returns {found:.5g}; expected {wanted:.5g}."


def count(number: int, noun: str) -> str:
    """A number and its noun: "1 input", "2 inputs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def unchanged(now: Any, then: Any) -> bool:
    """Whether the tensors in an argument, or in its tuples, lists and dicts, are what they were."""
    if isinstance(then, Tensor):
        return isinstance(now, Tensor) and now.shape == then.shape and bool(torch.isclose(now, then, 0, 0, True).all())
    if isinstance(then, dict):
        return now.keys() == then.keys() and all(unchanged(now[key], then[key]) for key in then)
    if isinstance(then, tuple | list):
        return len(now) == len(then) and all(unchanged(*pair) for pair in zip(now, then, strict=True))
    return True


def _tensors(found: Any, wanted: Tensor, close: float) -> str | None:
    if not isinstance(found, Tensor):
        return f"It returns {_kind(found)}; expected a tensor."
    if found.shape != wanted.shape:
        return f"The shape is {tuple(found.shape)}; expected {tuple(wanted.shape)}."
    if found.dtype != wanted.dtype:
        return f"The dtype is {_dtype(found)}; expected {_dtype(wanted)}."
    if not wanted.numel():
        return None
    found, wanted = found.detach(), wanted.detach()
    if not wanted.dtype.is_floating_point:
        apart = found != wanted
    else:
        if found.isnan().any() and not wanted.isnan().any():
            return (
                f"{int(found.isnan().sum())} of {found.numel()} entries are NaN; the first is {_place(found.isnan())}."
            )
        finite = wanted[wanted.isfinite()].abs()
        slack = close * max(1.0, float(finite.max()) if finite.numel() else 1.0)
        apart = ~torch.isclose(found, wanted, rtol=0.0, atol=slack, equal_nan=True)
    if not apart.any():
        return None
    at = tuple(apart.nonzero()[0].tolist())
    said = f"{int(apart.sum())} of {found.numel()} entries differ; the first is {_place(apart)}"
    return f"{said}: {_entry(found, at)}; expected {_entry(wanted, at)}."


def _others(found: Any, wanted: Any, close: float) -> str | None:
    if isinstance(wanted, tuple | list):
        if not isinstance(found, tuple | list):
            return f"It returns {_kind(found)}; expected {count(len(wanted), 'result')}, as a {type(wanted).__name__}."
        if len(found) != len(wanted):
            return f"It returns {count(len(found), 'result')}; expected {len(wanted)}."
        named = zip([f"result {i}" for i in range(1, len(wanted) + 1)], found, wanted, strict=True)
    elif isinstance(wanted, dict):
        if not isinstance(found, dict) or found.keys() != wanted.keys():
            got = sorted(map(str, found)) if isinstance(found, dict) else _kind(found)
            return f"It returns {got}; expected a dict with {sorted(map(str, wanted))}."
        named = zip([f"{key!r}" for key in wanted], [found[key] for key in wanted], wanted.values(), strict=True)
    else:
        return (
            None if type(found) is type(wanted) and found == wanted else f"It returns {found!r}; expected {wanted!r}."
        )
    for name, one, other in named:
        said = difference(one, other, close)
        if said:
            return f"In {name}: {said[0].lower()}{said[1:]}"
    return None


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, int | float | str) else f"a {type(value).__name__}"


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _place(where: Tensor) -> str:
    at = tuple(where.nonzero()[0].tolist())
    return f"at {list(at)}" if at else "the only one"


def _entry(x: Tensor, at: tuple[int, ...]) -> str:
    value = x[at].item()
    return f"{value:.5g}" if isinstance(value, float) else str(value)
