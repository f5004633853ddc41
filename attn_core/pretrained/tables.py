"""From what a file calls sizes and parameters to what our models call them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Rotary
from attn_core.pretrained.settings import Settings, reading
from attn_core.transformer import LanguageModel, SegmentEncoder, SwiGLU, TransformerConfig

Model = TypeVar("Model", LanguageModel, SegmentEncoder)


@dataclass(frozen=True)
class Pretrained(Generic[Model]):
    """A model, the tokenizer that it was trained with, and the tokens that end its texts.

    It unpacks to the first two: ``model, tokenizer = load_gguf(path)``. An encoder has no ``end_ids``.
    """

    model: Model
    tokenizer: Any
    end_ids: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.tokenizer))


class Table(NamedTuple):
    """What a family of files calls the modules of a model, and what our model calls them; and the files' settings.

    ``whole`` names modules that exist once, ``layer`` those of each layer, whose names begin with ``layers`` and a
    number. Names of ours that are separated by spaces share one matrix in the file, the rows of one after the other's.
    A parameter whose name ends with one of ``transposed`` is stored as the transpose of ours. ``logits`` is the matrix
    of the logits, which need not be stored, since it has to be the embedding. ``prefix`` may stand before a name, and
    names that match ``left_out`` are not read.

    ``needed`` settings may say nothing else, ``{name: (value if it is missing, other values…)}``; ``harmless`` ones
    (patterns, separated by spaces) change neither the logits nor the tokens of a text.
    """

    whole: dict[str, str]
    layers: str
    layer: dict[str, str]
    needed: Mapping[str, tuple[Any, ...]]
    harmless: str
    transposed: tuple[str, ...] = ()
    logits: str = ""
    prefix: str = ""
    left_out: str = ""


def make(path: Path, kind: Callable[..., Model], positions: Callable[[], nn.Module], **options: Any) -> Model:
    """A model of these options, from the file ``path``, without memory for its parameters: ``fill`` replaces them."""
    with torch.device("meta"), reading(path, "sizes that fit together"):
        return kind(TransformerConfig(dropout=0.0, scale_embedding=False, **options), positions=positions)


def make_llama(
    settings: Settings, names: dict[str, str], *, kv: str, head: str, eps: str, rotary: dict[str, Any], **sizes: int
) -> LanguageModel:
    """``make`` for the Llama family, from settings of these ``names``; ``rotary`` are options of ``Rotary``."""
    sizes |= settings.sizes(names)
    head_dim = settings.get(head, int, None)
    return make(
        settings.path,
        LanguageModel,
        partial(Rotary, head_dim or sizes["model_dim"] // sizes["num_heads"], **rotary),
        num_kv_heads=settings.get(kv, int, None),
        norm_first=True,
        norm=partial(nn.RMSNorm, eps=settings.get(eps, float)),
        attention=partial(MultiHeadAttention, head_dim=head_dim),
        feed_forward=SwiGLU,
        bias=False,
        **sizes,
    )


def fill(
    model: LanguageModel | SegmentEncoder,
    table: Table,
    stored: Collection[str],
    read: Callable[[str], Tensor],
    path: Path,
) -> None:
    """Give ``model`` the parameters named in ``stored``, each of which ``read`` returns in float32."""
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
    missing, unknown = sorted(names.keys() - set(stored)), sorted(set(stored) - names.keys() - {table.logits})
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
    if table.logits in stored and not torch.equal(read(table.logits), found["embedding.tokens.weight"]):
        raise ValueError(f"{path}: expected {table.logits} to be the embedding, got another matrix")
    model.load_state_dict(found, assign=True)
