"""From what a file calls settings and parameters to what our models call them; errors with the file's name."""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from attn_core.contract import check_integer, shown
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel, SegmentEncoder, SwiGLU, TransformerConfig

Model = TypeVar("Model", LanguageModel, SegmentEncoder)
_POINTER = b"version https://git-lfs"
_KINDS = {int: "an integer of at least 1", float: "a finite number above 0", str: "a text", list: "a list"}


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Whatever goes wrong becomes a ``ValueError`` that names the file: each library has errors of its own."""
    try:
        yield
    except Exception as error:
        with path.open("rb") as file:
            pointer = file.read(len(_POINTER)) == _POINTER
        found = "a Git LFS pointer" if pointer else f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: expected {expected}, got {found}") from error


class Settings:
    """The settings of a file by name, and which of them a loader has asked for.

    A setting inside another one is called ``outer.inner``. One that is null counts as missing.
    """

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path, self.values, self._asked = path, dict(_flat(values)), set[str]()

    @classmethod
    def from_json(cls, path: Path) -> "Settings":
        """The settings of a file in JSON."""
        with reading(path, "an object in JSON"):
            return cls(path, json.loads(path.read_text(encoding="utf-8")))

    def get(self, name: str, kind: type, default: Any = ...) -> Any:
        """The setting, which has to be of this kind; without a default, it has to be there."""
        self._asked.add(name)
        value = self.values.get(name, default)
        if value is ...:
            others = f"{len(self.values)} others: {', '.join(self.values)}"
            raise ValueError(f"{self.path}: expected the setting {name}, got {others}")
        if name in self.values:
            fits = isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)
            if not fits or (kind in (int, float) and not 0 < value < math.inf):
                raise ValueError(f"{self.path}: {name}: expected {_KINDS[kind]}, got {shown(value)}")
        return value

    def sizes(self, names: dict[str, str]) -> dict[str, int]:
        """What these settings say, ``{our name: theirs}``, as sizes under our names."""
        return {ours: self.get(theirs, int) for ours, theirs in names.items()}

    def expect(self, name: str, *accepted: Any) -> None:
        """Refuse any other value; a setting that is missing has the first of these."""
        self._asked.add(name)
        value = self.values.get(name, accepted[0])
        if value not in accepted:
            expected = " or ".join(map(repr, accepted))
            raise ValueError(f"{self.path}: expected {name} to be {expected}, got {shown(value)}")

    def token_ids(self, *names: str, vocab_size: int) -> tuple[int, ...]:
        """The tokens that these settings name, each of them none, one, or a list."""
        found: dict[int, None] = {}  # a set that keeps the order
        for name in names:
            self._asked.add(name)
            ids = self.values.get(name, [])
            for number in ids if isinstance(ids, list) else [ids]:
                check_integer(f"{self.path}: {name}", number, at_least=0, at_most=vocab_size - 1)
                found[number] = None
        return tuple(found)

    def refuse_others(self, harmless: Iterable[str]) -> None:
        """Refuse settings that the loader has not asked for, unless their names fit one of these patterns."""
        patterns = [*self._asked, *harmless]
        unknown = {name: x for name, x in self.values.items() if not any(fnmatchcase(name, y) for y in patterns)}
        if unknown:
            found = ", ".join(f"{name}={shown(x)}" for name, x in unknown.items())
            raise ValueError(f"{self.path}: expected settings that this model has, got {found}")


def _flat(values: dict[str, Any], outer: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{outer}{name}.")
        elif value is not None:
            yield f"{outer}{name}", value


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
    """What a family of files calls the modules of a model, ``{theirs: ours}``, and which settings it may have.

    ``whole`` names modules that exist once, ``layer`` those of each layer, whose names begin with ``layers`` and a
    number. Names of ours that are separated by spaces share one matrix in the file, the rows of one after the other's.
    A parameter whose name ends with one of ``transposed`` is stored as the transpose of ours. ``logits`` is the matrix
    of the logits, which need not be stored, since it has to be the embedding. ``prefix`` may stand before a name, and
    names that match ``left_out`` are not read.

    ``needed`` settings must have one of these values, ``{name: (value if it is missing, other values…)}``. ``harmless``
    ones (patterns, separated by spaces) change neither the logits nor the tokens of a text.
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
    """A model with these options, without memory for its parameters, which ``fill`` puts in."""
    with torch.device("meta"), reading(path, "sizes that fit together"):
        return kind(TransformerConfig(dropout=0.0, scale_embedding=False, **options), positions=positions)


def make_llama(
    settings: Settings, sizes: dict[str, int], *, kv: str, head: str, eps: str, rotary: dict[str, Any]
) -> LanguageModel:
    """``make`` for the Llama family; ``kv``, ``head``, ``eps`` name settings, ``rotary`` are options of ``Rotary``."""
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
        for name, part in zip(ours, (tensor.T if transposed else tensor).split(rows), strict=True):
            # A copy, so that no parameter keeps another one, or the file, in memory.
            found[name] = part.clone(memory_format=torch.contiguous_format)
    if table.logits in stored and not torch.equal(read(table.logits), found["embedding.tokens.weight"]):
        raise ValueError(f"{path}: expected {table.logits} to be the embedding, got another matrix")
    model.load_state_dict(found, assign=True)
