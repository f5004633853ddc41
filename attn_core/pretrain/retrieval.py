"""One vector for each text, and whether the nearest one belongs to its translation."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.contract import kind
from attn_core.data.vocab import PretrainingVocab
from attn_core.decode.hypothesis import evaluating
from attn_core.pretrain.batches import LabelledBatches, Text
from attn_core.pretrain.models import SegmentEncoder


def mean_vectors(states: Tensor, tokens: Tensor) -> Tensor:
    """The mean vector of each row's words, special tokens and padding left out: ``(B, T, C)`` to ``(B, C)``.

    ``tokens (B, T)`` are numbers of a ``PretrainingVocab``. A row without words gets zeros.

    Raises:
        ValueError: ``states`` and ``tokens`` that do not fit.
    """
    if not isinstance(states, Tensor) or not isinstance(tokens, Tensor):
        raise ValueError(f"states: expected tensors of states and tokens, got {kind(states)} and {kind(tokens)}")
    if states.dim() != 3 or tokens.shape != states.shape[:2]:
        raise ValueError(f"tokens: expected the first two axes of states, {tuple(states.shape)}, got {kind(tokens)}")
    words = (tokens >= len(PretrainingVocab.SPECIALS)).unsqueeze(-1)
    return (states * words).sum(1) / words.sum(1).clamp(min=1)


@torch.no_grad()
def text_vectors(
    encoder: SegmentEncoder, texts: Sequence[Sequence[str]], vocab: PretrainingVocab, *, batch_size: int = 100
) -> Tensor:
    """The mean vector of each text after each layer: ``(layers + 1, N, C)``, the embeddings first.

    The encoder is run in evaluation mode and left in the mode it was in.

    Raises:
        ValueError: no texts, or one without words.
    """
    batches = LabelledBatches([Text(words, label=0) for words in texts], vocab, batch_size=batch_size)
    device, found = next(encoder.parameters()).device, []
    with evaluating(encoder):
        for batch in batches:
            batch = batch.to(device)
            states = encoder.states(batch.source, batch.source_lengths)
            found.append(torch.stack([mean_vectors(x, batch.source) for x in states]))
    return torch.cat(found, dim=1)


def retrieval_accuracy(queries: Tensor, candidates: Tensor) -> float:
    """The share of ``queries (K, C)`` whose nearest of ``candidates (K, C)``, by cosine, is that of the same number.

    Chance is 1/K. Equal cosines count as wrong.

    Raises:
        ValueError: shapes that differ, or that have not two axes.
    """
    for name, given in (("queries", queries), ("candidates", candidates)):
        if not isinstance(given, Tensor):
            raise ValueError(f"{name}: expected a tensor of shape (K, C), got {kind(given)}")
    if queries.dim() != 2 or queries.shape != candidates.shape or not len(queries):
        raise ValueError(f"candidates: expected the shape of queries, {tuple(queries.shape)}, got {kind(candidates)}")
    cosines = functional.normalize(queries.double(), dim=1) @ functional.normalize(candidates.double(), dim=1).T
    own = cosines.diagonal().unsqueeze(1)
    return (((cosines >= own).sum(1)) == 1).double().mean().item()
