"""Which device to run on, and how large the tiles are that it works on."""

import torch

TILED = ("cpu",)
"""The kinds of device on which a mechanism works tile by tile, so that a tile stays in a core's cache."""


def default_device() -> torch.device:
    """The fastest device at hand: CUDA, then Apple's MPS, then the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def in_tiles(device: torch.device) -> bool:
    """Whether a mechanism works tile by tile; otherwise, and while PyTorch traces, each operation comes once."""
    return device.type in TILED and not torch.compiler.is_compiling()


def tile_limit(size: int, device: torch.device) -> int:
    """How much a tile may hold: ``size`` on devices that work tile by tile, and everything on the others."""
    return size if in_tiles(device) else 2**48
