"""Which device to run on, and how large the tiles are that it works on."""

import sys

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


def tile_limit(size: int, device: torch.device) -> int:
    """How much a tile may hold: ``size`` on a CPU; elsewhere all there is, since there launches cost more than memory.

    Python then launches each operation once, whatever the sizes of the batch and of the sequences.
    """
    return size if device.type in TILED else sys.maxsize
