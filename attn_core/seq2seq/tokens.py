"""Token ids, embedded small."""

from torch import nn


def embedding(vocab_size: int, embed_dim: int) -> nn.Embedding:
    """An embedding that starts small.

    PyTorch starts embeddings at a standard deviation of 1, ten times the states of a new GRU; attention then found
    the source words far later, or not at all (DECISIONS.md has the numbers).
    """
    made = nn.Embedding(vocab_size, embed_dim)
    nn.init.normal_(made.weight, std=0.1)
    return made
