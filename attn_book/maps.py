"""Attention weights in the forms of several libraries, converted to one array of maps.

Every picture of attention uses this module. The axes of the result are layer, head, query and key: ``(L, H, T, S)``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_SHAPES = "(T, S), (H, T, S) or (L, H, T, S), a list of one map per layer, or the dict of capture_attention"


@dataclass(frozen=True)
class Maps:
    """Attention maps ``weights (L, H, T, S)``, float32, with a name for each layer."""

    weights: np.ndarray
    layers: tuple[str, ...]


def read_maps(weights: Any) -> Maps:
    """Read attention weights from this package, Hugging Face, ``torch.nn`` or d2l as one array of maps.

    It accepts

    - a tensor or array ``(T, S)``, ``(H, T, S)`` or ``(L, H, T, S)``, whose first axis is never a batch;
    - a list or tuple with one map per layer, each ``(T, S)``, ``(H, T, S)`` or ``(1, H, T, S)``, as in Hugging Face's
      ``attentions``;
    - the dict of ``capture_attention``, whose names become those of the layers; several maps of one query each are the
      steps of a decoder;
    - a list per step of lists per layer of ``(H, 1, S)``, as in d2l's ``predict_seq2seq``. Of the pair that d2l's
      Transformer decoder keeps at each step, the second is read, the attention to the source.

    Raises:
        ValueError: if the shape is another, a batch has more than one sentence, layers differ in shape, or a weight is
            negative, infinite or not a number.
    """
    if isinstance(weights, Mapping):
        names = tuple(str(name) for name in weights)
        layers = [_calls(weights[name], name) for name in weights]
    elif isinstance(weights, list | tuple) and not _numbers(weights):
        layers = _nested(weights)
        names = tuple(str(i) for i in range(len(layers)))
    else:
        array = _array(weights, "weights")
        if array.ndim not in (2, 3, 4):
            raise ValueError(f"weights: expected {_SHAPES}, got shape {array.shape}")
        layers = list(array.reshape((1,) * (4 - array.ndim) + array.shape))
        names = tuple(str(i) for i in range(len(layers)))
    shapes = {layer.shape for layer in layers}
    if len(shapes) > 1:
        each = ", ".join(f"{name}: {layer.shape}" for name, layer in zip(names, layers, strict=True))
        raise ValueError(f"weights: expected the same (H, T, S) in every layer, got {each}; show each kind by itself")
    if not layers or 0 in layers[0].shape:
        raise ValueError(f"weights: expected at least one layer, head, query and key, got {shapes or 'none'}")
    stacked = np.stack(layers)
    if not np.isfinite(stacked).all() or stacked.min() < 0:
        raise ValueError("weights: expected finite numbers that are not negative (after the softmax), got others")
    return Maps(stacked, names)


def read_tokens(tokens: Iterable[str], name: str, length: int) -> list[str]:
    """A list of ``tokens``, checked to be ``length`` strings, one for each row or column of a map.

    Raises:
        ValueError: if they are not; the message names the argument ``name``.
    """
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        raise ValueError(
            f"{name}: expected a sequence of {length} strings, got {type(tokens).__name__}; split it first"
        )
    texts = list(tokens)
    wrong = [token for token in texts if not isinstance(token, str)]
    if wrong:
        raise ValueError(f"{name}: expected strings, got {wrong[0]!r}")
    if len(texts) != length:
        hint = " (is <eos> among them?)" if abs(len(texts) - length) == 1 else ""
        raise ValueError(f"{name}: expected {length} tokens, as the weights have, got {len(texts)}{hint}")
    return texts


def read_links(links: Iterable[Sequence[int]] | None, source: Sequence[str], target: Sequence[str]) -> list[list[int]]:
    """A sorted list of pairs (source index, target index), checked against the tokens.

    Raises:
        ValueError: if a link is not such a pair, or an index is out of range.
    """
    pairs = set()
    if links is not None and not isinstance(links, Iterable):
        raise ValueError(f"links: expected pairs (source index, target index), got {links!r}")
    for link in () if links is None else links:
        try:
            s, t = (operator.index(index) for index in link)
        except (TypeError, ValueError):
            raise ValueError(f"links: expected pairs (source index, target index), got {link!r}") from None
        if not (0 <= s < len(source) and 0 <= t < len(target)):
            raise ValueError(
                f"links: expected (source index below {len(source)}, target index below {len(target)}), got {link!r}"
            )
        pairs.add((s, t))
    return [list(link) for link in sorted(pairs)]


def fit_source(maps: Maps, source: Any) -> Maps:
    """The maps without the padded columns past the last token of ``source``, if these have no weight."""
    length = len(source) if isinstance(source, Sequence) and not isinstance(source, str) else maps.weights.shape[3]
    if 0 < length < maps.weights.shape[3] and not maps.weights[..., length:].any():
        return Maps(maps.weights[..., :length], maps.layers)
    return maps


def read_labelled(weights: Any, source: Iterable[str], target: Iterable[str]) -> tuple[Maps, list[str], list[str]]:
    """Read weights and the tokens of their columns (``source``) and rows (``target``), and check that they fit.

    Raises:
        ValueError: as ``read_maps`` and ``read_tokens``.
    """
    columns: Any = source if isinstance(source, str) or not isinstance(source, Iterable) else list(source)
    maps = fit_source(read_maps(weights), columns)
    queries, keys = maps.weights.shape[2:]
    return maps, read_tokens(columns, "source", keys), read_tokens(target, "target", queries)


def _numbers(values: Any) -> bool:
    """Whether a nested list contains plain numbers, and so is an array."""
    while isinstance(values, list | tuple) and values:
        values = values[0]
    return isinstance(values, int | float)


def _array(values: Any, name: str) -> np.ndarray:
    if values is None:
        raise ValueError(f"{name}: got None; Hugging Face gives weights only with attn_implementation='eager'")
    if hasattr(values, "detach"):
        # NumPy has no bfloat16.
        values = values.detach().cpu()
        values = (values.float() if values.is_floating_point() else values).numpy()
    try:
        if np.iscomplexobj(values) or getattr(values, "dtype", np.dtype(float)).kind in "SU":  # "1" would become 1
            raise TypeError
        return np.array(values, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected numbers in a tensor, got {type(values).__name__}") from None


def _layer(values: Any, name: str) -> np.ndarray:
    """Read one layer's map as ``(H, T, S)``."""
    array = _array(values, name)
    if array.ndim == 4 and array.shape[0] > 1:
        raise ValueError(
            f"{name}: expected one sentence, got a batch of {array.shape[0]}; pick item i with [w[i:i + 1] for w in …]"
        )
    if array.ndim not in (2, 3, 4):
        raise ValueError(f"{name}: expected (T, S), (H, T, S) or (1, H, T, S), got shape {array.shape}")
    return array.reshape((1,) * (3 - array.ndim) + array.shape[max(0, array.ndim - 3) :])


def _steps(steps: Sequence[np.ndarray], name: str) -> np.ndarray:
    """Join the maps ``(H, T, S)`` of a decoder's steps along the queries."""
    shapes = {(step.shape[0], step.shape[2]) for step in steps}
    if len(shapes) > 1:
        raise ValueError(f"{name}: expected the same heads and keys at each step, got {sorted(shapes)}")
    return np.concatenate(steps, axis=1)


def _calls(values: Any, name: str) -> np.ndarray:
    """Read the maps of one module from ``capture_attention``: one map, or one per decoding step."""
    if not isinstance(values, list | tuple):
        return _layer(values, f"weights[{name!r}]")
    calls = [_layer(value, f"weights[{name!r}][{i}]") for i, value in enumerate(values)]
    if not calls:
        raise ValueError(f"weights[{name!r}]: expected at least one map, got none")
    if len(calls) > 1 and any(call.shape[1] > 1 for call in calls):
        raise ValueError(
            f"weights[{name!r}]: expected one call of several queries or calls of one query each, "
            f"got {len(calls)} calls; capture one pass, or give one of them"
        )
    return _steps(calls, f"weights[{name!r}]")


def _nested(values: Sequence[Any]) -> list[np.ndarray]:
    """Read a list per layer, or a list per step of lists per layer."""
    if not any(isinstance(value, list | tuple) for value in values) or _numbers(values[0]):
        return [_layer(value, f"weights[{i}]") for i, value in enumerate(values)]
    steps = []
    for i, step in enumerate(values):
        if isinstance(step, list | tuple) and len(step) == 2 and all(isinstance(part, list | tuple) for part in step):
            step = step[1]
        if not isinstance(step, list | tuple) or not step:
            raise ValueError(f"weights[{i}]: expected a list with one map per layer at every step, got {step!r:.80}")
        steps.append([_layer(value, f"weights[{i}][{j}]") for j, value in enumerate(step)])
    if len({len(step) for step in steps}) > 1:
        raise ValueError("weights: expected as many layers at each step, got different numbers")
    return [_steps(layer, f"layer {j} of weights") for j, layer in enumerate(zip(*steps, strict=True))]
