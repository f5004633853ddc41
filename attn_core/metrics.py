"""How good a translation is, and how true an alignment."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from attn_core.contract import check_size, kind, shown

Words = Sequence[str]


def bleu(hypotheses: Sequence[Words], references: Sequence[Words]) -> float:
    """Corpus BLEU of tokenised sentences, from 0 to 100, computed by sacreBLEU without further tokenisation.

    Raises:
        ValueError: no sentences, another number of references, a sentence that is one string, or a word that is none.

    Source: Papineni et al. 2002; Post 2018 (sacreBLEU).
    """
    _check_paired(hypotheses, references)
    for name, sentences in (("hypotheses", hypotheses), ("references", references)):
        for word in (word for words in sentences for word in words if not isinstance(word, str)):
            raise ValueError(f"{name}: expected words that are strings, got {shown(word)}")
    import sacrebleu

    joined = ([" ".join(words) for words in sentences] for sentences in (hypotheses, references))
    found, wanted = joined
    return sacrebleu.corpus_bleu(found, [wanted], tokenize="none", force=True).score


def exact_match(hypotheses: Sequence[Words], references: Sequence[Words]) -> float:
    """The share of sentences, from 0 to 1, that equal their reference word for word.

    Raises:
        ValueError: no sentences, another number of references, or a sentence that is one string.
    """
    _check_paired(hypotheses, references)
    same = sum(list(found) == list(wanted) for found, wanted in zip(hypotheses, references, strict=True))
    return same / len(references)


def alignment_error(attentions: Sequence[Tensor], links: Sequence[Collection[tuple[int, int]]]) -> float:
    """The share of target words, from 0 to 1, whose most attended source word is not one of their true ones.

    ``attentions`` holds one map ``(T, S)`` per sentence, row t the attention paid when target word t was produced;
    ``links`` the true pairs (source index, target index) of each. Every target word that has a true link counts once,
    over all sentences; words without one, and rows past the last word such as <eos>, are left out. No row is shifted,
    and a map that looks at a column which is no word (<eos>) is wrong there. With one guess per word this is one minus
    the precision against possible links of Och and Ney 2003.

    Raises:
        ValueError: no sentences, another number of link sets, a map that is not of two axes or not finite, or a link
            outside it.
    """
    _check_paired(attentions, links, first="attentions", second="links")
    wrong = total = 0
    for number, (weights, pairs) in enumerate(zip(attentions, links, strict=True)):
        if not isinstance(weights, Tensor) or weights.dim() != 2:
            got = tuple(weights.shape) if isinstance(weights, Tensor) else kind(weights)
            raise ValueError(f"attentions: expected maps of shape (T, S), got {got} at {number}")
        if not isinstance(pairs, Collection) or not all(isinstance(x, tuple | list) and len(x) == 2 for x in pairs):
            raise ValueError(f"links: expected pairs (source, target) for sentence {number}, got {shown(pairs)}")
        if not weights.dtype.is_floating_point or not torch.isfinite(weights).all():
            raise ValueError(f"attentions: expected finite floating weights, got others in the map at {number}")
        # A row without any weight guesses nothing, and that is wrong.
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
    """The true source words of each target word that has any, from pairs (source index, target index)."""
    true: dict[int, set[int]] = {}
    for source, target in links:
        true.setdefault(target, set()).add(source)
    return true


def diagonal_guess(source_length: int, target_length: int) -> Tensor:
    """A map ``(T, S)`` that looks straight along the diagonal: the guess that any alignment has to beat.

    Raises:
        ValueError: a length below 1.
    """
    check_size("source_length", source_length)
    check_size("target_length", target_length)
    places = torch.linspace(0, source_length - 1, target_length).round().long()
    return torch.nn.functional.one_hot(places, source_length).float()


def _check_paired(
    found: Sequence[object], wanted: Sequence[object], *, first: str = "hypotheses", second: str = "references"
) -> None:
    for name, given in ((first, found), (second, wanted)):
        if not isinstance(given, Sequence):
            raise ValueError(f"{name}: expected a sequence with an entry for each sentence, got {kind(given)}")
    if not len(found):
        raise ValueError(f"{first}: expected at least one sentence, got none")
    if len(found) != len(wanted):
        raise ValueError(f"{second}: expected {len(found)}, one for each of {first}, got {len(wanted)}")
    for name, sentences in ((first, found), (second, wanted)):
        for sentence in sentences:
            if isinstance(sentence, str):
                raise ValueError(f"{name}: expected sentences as sequences of words, got the string {shown(sentence)}")
            if not isinstance(sentence, Collection | Tensor):
                raise ValueError(f"{name}: expected sentences as sequences of words, got {kind(sentence)}")
