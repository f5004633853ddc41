"""From the names that a file gives to parameters to the names in our models."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from attn_core.pretrain.models import SegmentEncoder
from attn_core.transformer import LanguageModel

Model = TypeVar("Model", LanguageModel, SegmentEncoder)


class Pretrained(NamedTuple, Generic[Model]):
    """A model, and the tokenizer that it was trained with."""

    model: Model
    tokenizer: Any


class Table(NamedTuple):
    """What a file calls the modules of a model, and what our model calls them.

    ``whole`` names modules that exist once, ``layer`` those of each layer, whose names begin with ``layers`` and a
    number. Names of ours that are separated by spaces share one matrix in the file, the rows of one after the other's.
    A parameter whose name ends with one of ``transposed`` is stored as the transpose of ours.
    """

    whole: dict[str, str]
    layers: str
    layer: dict[str, str]
    transposed: tuple[str, ...] = ()


def fill(
    model: LanguageModel | SegmentEncoder,
    table: Table,
    stored: Collection[str],
    read: Callable[[str], Tensor],
    path: Path | str,
) -> None:
    """Give ``model`` the parameters named in ``stored``, each of which ``read`` returns in float32.

    Raises:
        ValueError: if a parameter of the table is missing or has another shape, or if one is not in the table.
    """
    modules = table.whole | {
        f"{table.layers}.{number}.{theirs}": " ".join(f"stack.layers.{number}.{own}" for own in ours.split())
        for number in range(model.config.num_layers)
        for theirs, ours in table.layer.items()
    }
    expected: dict[str, Tensor] = model.state_dict()
    found: dict[str, Tensor] = {}
    names = {
        f"{theirs}.{part}": [f"{own}.{part}" for own in ours.split()]
        for theirs, ours in modules.items()
        for part in ("weight", "bias")
        if f"{ours.split()[0]}.{part}" in expected
    }
    missing, unknown = sorted(names.keys() - set(stored)), sorted(set(stored) - names.keys())
    if missing or unknown:
        raise ValueError(f"{path}: expected this model's parameters; missing: {missing}; not expected: {unknown}")
    for theirs, ours in names.items():
        tensor, transposed = read(theirs), theirs.endswith(table.transposed)
        rows = [len(expected[own]) for own in ours]
        shape: tuple[int, ...] = (sum(rows), *expected[ours[0]].shape[1:])
        shape = shape[::-1] if transposed else shape
        if tensor.shape != shape:
            raise ValueError(f"{path}: expected {theirs} of shape {shape}, got {tuple(tensor.shape)}")
        parts = (tensor.T if transposed else tensor).split(rows)
        # Copies, so that no parameter keeps another one, or the file, in memory.
        copies = (part.clone(memory_format=torch.contiguous_format) for part in parts)
        found |= zip(ours, copies, strict=True)
    model.load_state_dict(found, assign=True)
