"""Token ids: checked, and embedded small."""

import torch
from torch import Tensor, nn

from attn_core.contract import kind


def embedding(vocab_size: int, embed_dim: int) -> nn.Embedding:
    """An embedding that starts small.

    PyTorch starts embeddings at a standard deviation of 1, ten times the states of a new GRU; attention then found
    the source words far later, or not at all (DECISIONS.md has the numbers).
    """
    made = nn.Embedding(vocab_size, embed_dim)
    nn.init.normal_(made.weight, std=0.1)
    return made


def check_tokens(name: str, tokens: Tensor, vocab_size: int, *, axes: int, batch: int | None = None) -> None:
    """Token ids with so many axes, each in the vocabulary; of a batch of this size, where one is given.

    Raises:
        ValueError: they are not.
    """
    if not isinstance(tokens, Tensor) or tokens.dtype not in (torch.int64, torch.int32) or tokens.dim() != axes:
        raise ValueError(f"{name}: expected an integer tensor with {axes} axes, got {kind(tokens)}")
    if tokens.numel() == 0:
        raise ValueError(f"{name}: expected at least one token, got shape {tuple(tokens.shape)}")
    if batch is not None and tokens.shape[0] != batch:
        raise ValueError(f"{name}: expected a batch of {batch}, as the source's, got {tokens.shape[0]}")
    # On a GPU this would wait for the device at every step, and the embedding's own check speaks there.
    if tokens.device.type == "cpu":
        low, high = (int(x) for x in torch.aminmax(tokens))
        if low < 0 or high >= vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"{name}: expected token ids from 0 to {vocab_size - 1}, got {wrong}")
