"""Attention scored against the true alignment of a sentence pair, as the corpus knows it."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from attn_core.contract import check_integer, kind, shown


def alignment_error(attentions: Sequence[Tensor], links: Sequence[Collection[tuple[int, int]]]) -> float:
    """The share of target words, from 0 to 1, whose greatest attention weight is not on a linked source word.

    ``attentions`` has one map ``(T, S)`` per sentence, in which row t holds the weights when target word t was
    produced, and ``links`` the true pairs (source index, target index) of each sentence. Each target word with a link
    counts once, over all sentences; words without a link, and rows past the last word such as <eos>, are left out. No
    row is shifted, and a maximum in a column that is not a word (<eos>) is an error. With one guess per word, this is
    one minus the precision against possible links of Och and Ney 2003.

    Raises:
        ValueError: if there are no sentences, the number of link sets differs, a map is not a finite matrix, or a link
            is outside it.
    """
    if not len(attentions):
        raise ValueError("attentions: expected at least one sentence, got none")
    if len(attentions) != len(links):
        raise ValueError(f"links: expected {len(attentions)}, one for each of attentions, got {len(links)}")
    wrong = total = 0
    for number, (weights, pairs) in enumerate(zip(attentions, links, strict=True)):
        if not isinstance(weights, Tensor) or weights.dim() != 2:
            shape = tuple(weights.shape) if isinstance(weights, Tensor) else kind(weights)
            raise ValueError(f"attentions: expected maps of shape (T, S), got {shape} at {number}")
        if not isinstance(pairs, Collection) or not all(isinstance(x, tuple | list) and len(x) == 2 for x in pairs):
            raise ValueError(f"links: expected pairs (source, target) for sentence {number}, got {shown(pairs)}")
        if not weights.dtype.is_floating_point or not torch.isfinite(weights).all():
            raise ValueError(f"attentions: expected finite floating weights, got others in the map at {number}")
        # A row without any weight has no guess, which counts as an error.
        guesses = weights.argmax(dim=1).masked_fill(~weights.any(dim=1), -1).tolist() if weights.shape[1] else []
        for source, target in pairs:
            if not (isinstance(source, int) and isinstance(target, int)) or not (
                0 <= source < weights.shape[1] and 0 <= target < weights.shape[0]
            ):
                raise ValueError(
                    f"links: expected pairs within the map {tuple(weights.shape)[::-1]} (source, target) of sentence "
                    f"{number}, got {(source, target)}"
                )
        true = true_sources(pairs)
        wrong += sum(guesses[target] not in sources for target, sources in true.items())
        total += len(true)
    if total == 0:
        raise ValueError("links: expected at least one true link, got none")
    return wrong / total


def true_sources(links: Collection[tuple[int, int]]) -> dict[int, set[int]]:
    """The linked source words of each target word that has a link, from pairs (source index, target index)."""
    true: dict[int, set[int]] = {}
    for source, target in links:
        true.setdefault(target, set()).add(source)
    return true


def diagonal_guess(source_length: int, target_length: int) -> Tensor:
    """A map ``(T, S)`` with its weights along the diagonal, a baseline for any alignment.

    Raises:
        ValueError: if a length is below 1.
    """
    check_integer("source_length", source_length)
    check_integer("target_length", target_length)
    positions = torch.linspace(0, source_length - 1, target_length).round().long()
    return torch.nn.functional.one_hot(positions, source_length).float()
