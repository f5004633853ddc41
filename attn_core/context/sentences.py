"""Which words stand in which sentence."""

import torch
from torch import Tensor

from attn_core.contract import check_integers, kind


def sentence_members(sentence_numbers: Tensor, mask: Tensor | None = None) -> Tensor:
    """Which of T words are in each of N sentences, N being one more than the highest number, at least 1.

    Shapes: ``sentence_numbers (B, T)``, integers 0, 1, 2, …; ``mask (B, T)``, True = a word, False = padding, which is
    in no sentence whatever its number. Returns ``(B, N, T)``; a sentence without words, as a short paragraph's last
    ones, has a row of False.

    Raises:
        ValueError: ``sentence_numbers`` is not an integer tensor of two axes, has a word in a sentence below 0 or above
            T − 1, or ``mask`` is not a boolean tensor of its shape.
    """
    check_integers("sentence_numbers", sentence_numbers, axes=2)
    if mask is not None:
        check_words(mask, sentence_numbers)
    true = sentence_numbers if mask is None else sentence_numbers[mask]
    low, high = (int(x) for x in torch.aminmax(true)) if true.numel() else (0, 0)
    length = sentence_numbers.shape[1]
    if low < 0 or high >= max(length, 1):  # a number of millions would ask for as many sentences
        wrong = low if low < 0 else high
        raise ValueError(f"sentence_numbers: expected numbers from 0 to {length - 1} at words, got {wrong}")
    numbers = torch.arange(high + 1, device=sentence_numbers.device)
    members = sentence_numbers[:, None] == numbers[:, None]
    return members if mask is None else members & mask[:, None]


def check_words(mask: Tensor, of: Tensor) -> None:
    """Check that ``mask`` says of each of the words ``of (B, T, …)`` whether it is one.

    Raises:
        ValueError: it is not boolean, or of another shape or device.
    """
    shape = tuple(of.shape[:2])
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or tuple(mask.shape) != shape:
        raise ValueError(f"mask: expected a boolean tensor of shape {shape}, got {kind(mask)}")
    if mask.device != of.device:
        raise ValueError(f"mask: expected device {of.device}, as the rest, got {mask.device}")
