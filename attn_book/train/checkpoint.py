"""Checkpoints: one file that is whole or not there at all, and from which training goes on bit for bit.

The file is in the safetensors format: tensors, and JSON in its metadata. Unlike a pickle, it runs no code when it is
loaded. A checksum covers both, so that a file damaged anywhere is refused.
"""

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attn_core.contract import kind

FORMAT = "attn_core checkpoint 1"
ADAM = ("step", "exp_avg", "exp_avg_sq")
"""What Adam keeps for each parameter."""


class Checkpoint(NamedTuple):
    """Named ``tensors``; the ``settings`` of the run, and its ``progress``, both in JSON's types."""

    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any]
    progress: Mapping[str, Any]


def save(path: Path | str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, which replaces an older one.

    A process killed in the middle, or a power cut, leaves the old file or the new one, and at worst ``NAME.partial``
    beside it, which the next ``save`` overwrites. Tensors that share memory are each written in full.

    Raises:
        OSError: if the file cannot be written; an older one is left as it was.
    """
    from safetensors.torch import save as as_bytes  # needed by checkpoints alone

    path = Path(path)
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in checkpoint.tensors.items()
    }
    # float: NumPy's numbers and scalar tensors
    text = json.dumps({"settings": checkpoint.settings, "progress": checkpoint.progress}, default=float)
    metadata = {"format": FORMAT, "text": text, "checksum": _checksum(tensors, text)}
    content = as_bytes(tensors, metadata)
    partial = path.with_name(f"{path.name}.partial")
    try:
        with suppress(FileNotFoundError):
            partial.unlink()
        with open(partial, "xb") as file:  # a new file: a link that somebody left under this name is not followed
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # otherwise a power cut could leave the new name on an empty file
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def load(path: Path | str) -> Checkpoint:
    """Read what ``save`` wrote; the tensors are on the CPU.

    Raises:
        ValueError: if the file is not a checkpoint, or is damaged or cut short.
        OSError: if it cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    content = Path(path).read_bytes()
    try:
        tensors = from_bytes(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that PyTorch does not have
        raise ValueError(f"checkpoint: expected a whole checkpoint, got {path}: {str(error):.120}") from None
    metadata = header.get("__metadata__") or {}
    if metadata.get("format") != FORMAT:
        other = metadata.get("format", "another safetensors file")
        raise ValueError(f"checkpoint: expected a file of format {FORMAT!r}, got {path}: {other:.80}")
    text = metadata.get("text", "")
    if metadata.get("checksum") != _checksum(tensors, text):
        raise ValueError(f"checkpoint: expected a whole checkpoint, got {path}: its checksum does not fit its content")
    try:
        parts = json.loads(text)
        settings, progress = dict(parts["settings"]), dict(parts["progress"])
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"checkpoint: expected settings and progress, got {path}: {text:.80}") from None
    return Checkpoint(tensors, settings, progress)


def load_matching(path: Path | str, settings: Mapping[str, Any]) -> Checkpoint | None:
    """Read what ``save`` wrote with the same settings; None if there is no file.

    Raises:
        ValueError: as ``load``, or if the file has other settings; the message names them.
        OSError: if the file cannot be read.
    """
    if not Path(path).exists():
        return None
    saved = load(path)
    names = {**saved.settings, **settings}
    pairs = [(name, saved.settings.get(name, "nothing"), settings.get(name, "nothing")) for name in names]
    wrong = [f"{name}: expected {expected}, got {now}" for name, expected, now in pairs if expected != now]
    if wrong:
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ValueError(f"checkpoint: {path} is of another run; {'; '.join(wrong[:5])}{more}")
    return saved


def training_state(model: nn.Module, optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    """What a step changes, by name: the model's parameters and buffers, Adam's moments, the random states."""
    tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        # A parameter that has had no gradient yet has no state.
        tensors |= {f"adam/{key}/{name}": value for key, value in optimizer.state.get(parameter, {}).items()}
    return tensors | _random_state()


def restore(tensors: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Adam) -> None:
    """Put back what ``training_state`` gave, into a model of the same names and shapes, on any device.

    The generator of a device that was not there keeps its state.
    """
    model.load_state_dict(_under("model/", tensors))
    moments = {key: _under(f"adam/{key}/", tensors) for key in ADAM}
    state = {}
    for index, (name, parameter) in enumerate(model.named_parameters()):
        if name in moments["step"]:
            # They need the parameter's own memory layout, because fused Adam goes through both side by side.
            laid_out = {key: torch.empty_like(parameter).copy_(moments[key][name]) for key in ADAM[1:]}
            state[index] = {"step": moments["step"][name], **laid_out}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    _restore_random_state(tensors)


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Seed every device's generator, and restore the caller's states afterwards."""
    callers = _random_state()
    try:
        torch.manual_seed(seed)
        yield
    finally:
        _restore_random_state(callers)


def _gpus() -> range:
    """The CUDA devices, once something uses CUDA: asking one for its random state would claim memory on it."""
    return range(torch.cuda.device_count()) if torch.cuda.is_initialized() else range(0)


def _random_state() -> dict[str, Tensor]:
    states = {"random/cpu": torch.get_rng_state()}
    for index in _gpus():
        states[f"random/cuda/{index}"] = torch.cuda.get_rng_state(index)
    if torch.backends.mps.is_available():
        states["random/mps"] = torch.mps.get_rng_state()
    return states


def _restore_random_state(tensors: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(tensors["random/cpu"])
    for index in _gpus():
        if f"random/cuda/{index}" in tensors:
            torch.cuda.set_rng_state(tensors[f"random/cuda/{index}"], index)
    if torch.backends.mps.is_available() and "random/mps" in tensors:
        torch.mps.set_rng_state(tensors["random/mps"])


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """A CRC-32 of the text and of every tensor's name, dtype, shape and bytes."""
    checksum = zlib.crc32(text.encode())
    for name in sorted(tensors):
        checksum = zlib.crc32(f"{name} {kind(tensors[name])}".encode(), checksum)
        checksum = zlib.crc32(tensors[name].flatten().view(torch.uint8).numpy().data, checksum)
    return f"{checksum:08x}"
