"""What travels between the grader and the student's process: JSON that names only harmless things.

Nothing is unpickled, so that a student's process can send wrong values but no code. Tensors, numbers, strings, None,
tuples, lists and dicts travel as they are; any other object stays where it is and is named by a number.
"""

from __future__ import annotations

from base64 import b64decode, b64encode  # by themselves: a notebook may patch their modules
from collections.abc import Callable
from json import dumps, loads
from typing import Any

import numpy
import torch

LARGEST, VALUES, TEXT = 16 * 2**20, 100_000, 20_000
"""A message's most bytes and values, and the characters of a string in it: the grader works through all of them."""

_KINDS = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)
KINDS = {"ndarray": "numpy array"}
_DTYPES = {str(dtype): dtype for dtype in _KINDS}


def pack(value: Any, keep: Callable[[Any], int]) -> Any:
    """Turn a value into what JSON can hold; ``keep`` gives the number of an object that stays."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor) and str(value.dtype) in _DTYPES:
        array = value.detach().cpu().contiguous().numpy()
        return {"tensor": [str(value.dtype), list(value.shape), b64encode(array.tobytes()).decode()]}
    if isinstance(value, tuple):
        return {"tuple": [pack(item, keep) for item in value]}
    if isinstance(value, list):
        return {"list": [pack(item, keep) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[pack(key, keep), pack(item, keep)] for key, item in value.items()]}
    kind = f"{str(value.dtype)[6:]} tensor" if isinstance(value, torch.Tensor) else type(value).__name__
    return {"object": [keep(value), KINDS.get(kind, kind)]}


def unpack(packed: Any, find: Callable[[int, str], Any]) -> Any:
    """Turn it back; ``find`` gives what stands for an object of that number and kind.

    Raises:
        ValueError: it is nothing that ``pack`` gives.
    """
    if isinstance(packed, str) and len(packed) > TEXT:
        raise ValueError(f"packed: expected strings of at most {TEXT:,} characters, got one of {len(packed):,}")
    if packed is None or isinstance(packed, bool | int | float | str):
        return packed
    match packed:
        case {"tensor": [str(dtype), list(shape), str(text)]} if dtype in _DTYPES:
            return _tensor(_DTYPES[dtype], shape, b64decode(text, validate=True))
        case {"tuple": list(items)}:
            return tuple(unpack(item, find) for item in items)
        case {"list": list(items)}:
            return [unpack(item, find) for item in items]
        case {"dict": list(pairs)}:
            return {unpack(key, find): unpack(item, find) for key, item in pairs}
        case {"object": [int(number), str(kind)]}:
            return find(number, kind)
    raise ValueError("packed: expected what pack gives, got something else")


def _tensor(dtype: torch.dtype, shape: list[Any], data: bytes) -> torch.Tensor:
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError("packed: expected a tensor's shape, got something else")
    kind = str(dtype).removeprefix("torch.")
    return torch.from_numpy(numpy.frombuffer(data, dtype=kind).copy()).reshape(shape)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value, in the order in which they travel."""
    if isinstance(value, torch.Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in inside for tensor in tensors(item)]


def to_line(message: dict[str, Any]) -> bytes:
    """One message as one line."""
    return dumps(message, separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes) -> dict[str, Any]:
    """The message of a line.

    Raises:
        ValueError: the line is no message.
    """
    if line.count(b",") + line.count(b"[") > VALUES:
        raise ValueError(f"line: expected a message of at most {VALUES:,} values")
    try:
        message = loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line: expected a message, got {line[:40]!r}") from error
    if not isinstance(message, dict):
        raise ValueError(f"line: expected a message, got {line[:40]!r}")
    return message
