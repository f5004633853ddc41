"""Which device to run on."""

import torch


def default_device() -> torch.device:
    """The fastest device at hand: CUDA, then Apple's MPS, then the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")
