"""Metrics: BLEU and exact match of translations, and the error of an alignment."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from attn_core.contract import check_integer, kind, shown

Words = Sequence[str]


def bleu(hypotheses: Sequence[Words], references: Sequence[Words]) -> float:
    """Corpus BLEU of tokenised sentences, from 0 to 100, computed by sacreBLEU without further tokenisation.

    Raises:
        ValueError: if there are no sentences, the number of references differs, a sentence is a single string, or a
            word is not a string.

    Source: Papineni et al. 2002; Post 2018 (sacreBLEU).
    """
    _check_paired(hypotheses, references)
    for name, sentences in (("hypotheses", hypotheses), ("references", references)):
        for word in (word for words in sentences for word in words if not isinstance(word, str)):
            raise ValueError(f"{name}: expected words that are strings, got {shown(word)}")
    import sacrebleu

    outputs, targets = ([" ".join(words) for words in sentences] for sentences in (hypotheses, references))
    return sacrebleu.corpus_bleu(outputs, [targets], tokenize="none", force=True).score


def exact_match(hypotheses: Sequence[Words], references: Sequence[Words]) -> float:
    """The share of sentences, from 0 to 1, that equal their reference word for word.

    Raises:
        ValueError: if there are no sentences, the number of references differs, or a sentence is a single string.
    """
    _check_paired(hypotheses, references)
    same = sum(list(words) == list(reference) for words, reference in zip(hypotheses, references, strict=True))
    return same / len(references)


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
    _check_paired(attentions, links, first="attentions", second="links")
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


def _check_paired(
    ours: Sequence[object], truth: Sequence[object], *, first: str = "hypotheses", second: str = "references"
) -> None:
    for name, sentences in ((first, ours), (second, truth)):
        if not isinstance(sentences, Sequence):
            raise ValueError(f"{name}: expected a sequence with an entry for each sentence, got {kind(sentences)}")
    if not len(ours):
        raise ValueError(f"{first}: expected at least one sentence, got none")
    if len(ours) != len(truth):
        raise ValueError(f"{second}: expected {len(ours)}, one for each of {first}, got {len(truth)}")
    for name, sentences in ((first, ours), (second, truth)):
        for sentence in sentences:
            if isinstance(sentence, str):
                raise ValueError(f"{name}: expected sentences as sequences of words, got the string {shown(sentence)}")
            if not isinstance(sentence, Collection | Tensor):
                raise ValueError(f"{name}: expected sentences as sequences of words, got {kind(sentence)}")
