"""One vector for each text, and whether the nearest one belongs to its translation."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.data.vocab import PretrainingVocab
from attn_book.pretrain.batches import LabelledBatches, Text
from attn_core.contract import kind
from attn_core.evaluation import evaluating
from attn_core.transformer import SegmentEncoder


def mean_vectors(states: Tensor, tokens: Tensor) -> Tensor:
    """The mean vector of each row's words, without special tokens and padding: ``(B, T, C)`` to ``(B, C)``.

    ``tokens (B, T)`` are ids of a ``PretrainingVocab``. A row without words gets zeros.

    Raises:
        ValueError: if ``states`` and ``tokens`` do not fit.
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
        ValueError: if there are no texts, or one without words.
    """
    batches = LabelledBatches([Text(words, label=0) for words in texts], vocab, batch_size=batch_size)
    device, vectors = next(encoder.parameters()).device, []
    with evaluating(encoder):
        for batch in batches:
            batch = batch.to(device)
            states = encoder.states(batch.source, batch.source_lengths)
            vectors.append(torch.stack([mean_vectors(x, batch.source) for x in states]))
    return torch.cat(vectors, dim=1)


def retrieval_accuracy(queries: Tensor, candidates: Tensor) -> float:
    """The share of ``queries (K, C)`` whose nearest of ``candidates (K, C)``, by cosine, has the same index.

    Chance level is 1/K. Equal cosines count as wrong.

    Raises:
        ValueError: if the two are not tensors of the same two axes.
    """
    for name, vectors in (("queries", queries), ("candidates", candidates)):
        if not isinstance(vectors, Tensor):
            raise ValueError(f"{name}: expected a tensor of shape (K, C), got {kind(vectors)}")
    if queries.dim() != 2 or queries.shape != candidates.shape or not len(queries):
        raise ValueError(f"candidates: expected the shape of queries, {tuple(queries.shape)}, got {kind(candidates)}")
    cosines = functional.normalize(queries.double(), dim=1) @ functional.normalize(candidates.double(), dim=1).T
    own = cosines.diagonal().unsqueeze(1)
    return (((cosines >= own).sum(1)) == 1).double().mean().item()
