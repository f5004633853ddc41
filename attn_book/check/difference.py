"""Describes in one sentence how a result differs from what was expected."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def difference(result: Any, expected: Any, close: float) -> str | None:
    """A sentence on how ``result`` differs from ``expected``, or None if it does not.

    It compares kind, shape, dtype, NaN and then the entries. Both are tensors, numbers, strings or None, or tuples,
    lists and dicts of these. ``close`` is the tolerance for numbers, as a share of the greatest expected entry (and of
    1, if that is larger). A number may come as a tensor of one entry.
    """
    if result is None and expected is not None:
        return "It returns None. Is there a return?"
    if isinstance(expected, Tensor):
        return _tensors(result, expected, close)
    if isinstance(expected, bool) or not isinstance(expected, int | float):
        return _others(result, expected, close)
    if isinstance(result, Tensor) and result.numel() == 1:
        result = result.item()
    if isinstance(result, bool) or not isinstance(result, int | float):
        return f"It returns {_kind(result)}; expected a number."
    if result == expected or (math.isnan(result) and math.isnan(expected)):
        return None
    if abs(result - expected) <= close * max(1.0, abs(expected)):
        return None
    return f"It returns {result:.5g}; expected {expected:.5g}."


def count(number: int, noun: str) -> str:
    """A number and its noun: "1 input", "2 inputs"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def unchanged(now: Any, then: Any) -> bool:
    """Whether the tensors in an argument, or in its tuples, lists and dicts, have kept their values."""
    if isinstance(then, Tensor):
        return isinstance(now, Tensor) and now.shape == then.shape and bool(torch.isclose(now, then, 0, 0, True).all())
    if isinstance(then, dict):
        return now.keys() == then.keys() and all(unchanged(now[key], then[key]) for key in then)
    if isinstance(then, tuple | list):
        return len(now) == len(then) and all(unchanged(*pair) for pair in zip(now, then, strict=True))
    return True


def _tensors(result: Any, expected: Tensor, close: float) -> str | None:
    if not isinstance(result, Tensor):
        return f"It returns {_kind(result)}; expected a tensor."
    if result.shape != expected.shape:
        return f"The shape is {tuple(result.shape)}; expected {tuple(expected.shape)}."
    if result.dtype != expected.dtype:
        return f"The dtype is {_dtype(result)}; expected {_dtype(expected)}."
    if not expected.numel():
        return None
    result, expected = result.detach(), expected.detach()
    if not expected.dtype.is_floating_point:
        apart = result != expected
    else:
        if result.isnan().any() and not expected.isnan().any():
            nan = result.isnan()
            return f"{int(nan.sum())} of {result.numel()} entries are NaN; the first is {_position(nan)}."
        finite = expected[expected.isfinite()].abs()
        slack = close * max(1.0, float(finite.max()) if finite.numel() else 1.0)
        apart = ~torch.isclose(result, expected, rtol=0.0, atol=slack, equal_nan=True)
    if not apart.any():
        return None
    at = tuple(apart.nonzero()[0].tolist())
    message = f"{int(apart.sum())} of {result.numel()} entries differ; the first is {_position(apart)}"
    return f"{message}: {_entry(result, at)}; expected {_entry(expected, at)}."


def _others(result: Any, expected: Any, close: float) -> str | None:
    if isinstance(expected, tuple | list):
        if not isinstance(result, tuple | list):
            number = count(len(expected), "result")
            return f"It returns {_kind(result)}; expected {number}, as a {type(expected).__name__}."
        if len(result) != len(expected):
            return f"It returns {count(len(result), 'result')}; expected {len(expected)}."
        named = zip([f"result {i}" for i in range(1, len(expected) + 1)], result, expected, strict=True)
    elif isinstance(expected, dict):
        if not isinstance(result, dict) or result.keys() != expected.keys():
            description = sorted(map(str, result)) if isinstance(result, dict) else _kind(result)
            return f"It returns {description}; expected a dict with {sorted(map(str, expected))}."
        named = zip([f"{key!r}" for key in expected], [result[key] for key in expected], expected.values(), strict=True)
    else:
        same = type(result) is type(expected) and result == expected
        return None if same else f"It returns {result!r}; expected {expected!r}."
    for name, one, other in named:
        message = difference(one, other, close)
        if message:
            return f"In {name}: {message[0].lower()}{message[1:]}"
    return None


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, int | float | str) else f"a {type(value).__name__}"


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _position(where: Tensor) -> str:
    at = tuple(where.nonzero()[0].tolist())
    return f"at {list(at)}" if at else "the only one"


def _entry(x: Tensor, at: tuple[int, ...]) -> str:
    value = x[at].item()
    return f"{value:.5g}" if isinstance(value, float) else str(value)
