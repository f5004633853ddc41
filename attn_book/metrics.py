"""Metrics: BLEU and exact match of translations."""

from collections.abc import Iterable, Sequence

from attn_core.contract import shown

Words = Sequence[str]


def bleu(hypotheses: Sequence[Words], references: Sequence[Words]) -> float:
    """Corpus BLEU of tokenised sentences, from 0 to 100, computed by sacreBLEU without further tokenisation.

    Raises:
        ValueError: if there are no sentences, the number of references differs, or a sentence is no sequence of words.

    Source: Papineni et al. 2002; Post 2018 (sacreBLEU).
    """
    _check_paired(hypotheses, references)
    import sacrebleu

    for name, sentences in (("hypotheses", hypotheses), ("references", references)):
        for word in (word for words in sentences for word in words):
            if not isinstance(word, str):
                raise ValueError(f"{name}: expected words that are strings, got {shown(word)}")
    outputs, targets = ([" ".join(words) for words in sentences] for sentences in (hypotheses, references))
    return sacrebleu.corpus_bleu(outputs, [targets], tokenize="none", force=True).score


def exact_match(hypotheses: Sequence[Words], references: Sequence[Words]) -> float:
    """The share of sentences, from 0 to 1, that equal their reference word for word.

    Raises:
        ValueError: as ``bleu``.
    """
    _check_paired(hypotheses, references)
    same = sum(list(words) == list(reference) for words, reference in zip(hypotheses, references, strict=True))
    return same / len(references)


def _check_paired(hypotheses: Sequence[Words], references: Sequence[Words]) -> None:
    for name, sentences in (("hypotheses", hypotheses), ("references", references)):
        if not isinstance(sentences, Sequence):
            raise ValueError(f"{name}: expected a sequence of sentences, got {shown(sentences)}")
        for sentence in sentences:
            if isinstance(sentence, str):  # its letters would be compared
                raise ValueError(f"{name}: expected sentences as sequences of words, got the string {shown(sentence)}")
            if not isinstance(sentence, Iterable):
                raise ValueError(f"{name}: expected sentences as sequences of words, got {shown(sentence)}")
    if not hypotheses:
        raise ValueError("hypotheses: expected at least one sentence, got none")
    if len(hypotheses) != len(references):
        raise ValueError(f"references: expected {len(hypotheses)}, one for each of hypotheses, got {len(references)}")
