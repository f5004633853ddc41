"""One encoder for two languages: does hiding words bring a sentence and its translation together?

Both languages share one vocabulary and all weights. "apart" reads English paragraphs and other paragraphs in French, so
that nothing says which sentence translates which; "pairs" reads half as many of these, and the other half of its text
as a paragraph beside its translation, words hidden in both; "english" and "french" read as much in one language, and of
the other they have the vocabulary alone. Then, among some sentences that no training has seen, the translation is
sought by the cosine of mean vectors: before any training, and after it, at each layer; also with each language's own
mean vector subtracted first, for the two languages may lie apart as wholes.

Source: Conneau and Lample 2019 (translation language modelling); Conneau et al. 2020 (what makes languages meet).
"""

import importlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attn_book.corpus import Paragraph, paragraph_corpus
from attn_book.pretrain import (
    MaskedBatches,
    MaskedLanguageModel,
    PretrainingVocab,
    Text,
    masked_loss,
    masked_scores,
    whole_texts,
)
from attn_book.retrieval import retrieval_accuracy, text_vectors
from attn_book.train import fit
from attn_core.transformer import SegmentEncoder, TransformerConfig
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
KINDS = ("apart", "pairs", "english", "french")
PARAGRAPHS, TESTED = 12_000, 500
CANDIDATES = 200
SHORTEST = 5
"""Words that a sentence has at least, in both languages, to be a candidate."""
EPOCHS, BATCH_SIZE, LEARNING_RATE = 12, 32, 3e-3
SIZES: dict[str, Any] = {"model_dim": 64, "num_heads": 4, "num_layers": 2, "feed_forward_dim": 256, "norm_first": True}
PROCESSES = 2

Words = Sequence[str]


def texts_of(kind: str, paragraphs: Sequence[Paragraph]) -> list[Text]:
    """What each kind reads: one language of all paragraphs; or English of the first half, French of the second.

    With "pairs", every other text of these is left out, and a pair of both languages of a paragraph takes the place of
    two; one pair in two has French first.
    """
    if kind in ("english", "french"):
        return [Text(p.source if kind == "english" else p.target) for p in paragraphs]
    half = len(paragraphs) // 2
    alone = [Text(p.source) for p in paragraphs[:half]] + [Text(p.target) for p in paragraphs[half:]]
    if kind == "apart":
        return alone
    pairs = [Text(p.source, p.target) for p in paragraphs[:half]][1::2]
    return alone[::2] + [Text(p.second, p.first) if i % 2 else p for i, p in enumerate(pairs)]


def candidates(
    paragraphs: Sequence[Paragraph], count: int, read: Sequence[Paragraph] = ()
) -> tuple[list[Words], list[Words]]:
    """The first so many sentences that are long enough, unlike all before them, and not ``read``, in both languages."""
    seen = {words for paragraph in read for pair in paragraph.sentences for words in (pair.source, pair.target)}
    found: list[tuple[Words, Words]] = []
    for pair in (pair for paragraph in paragraphs for pair in paragraph.sentences):
        both = pair.source, pair.target
        if min(map(len, both)) >= SHORTEST and seen.isdisjoint(both):
            seen |= {*both}
            found.append(both)
    if len(found) < count:
        raise ValueError(f"count: expected at most the {len(found)} sentences that there are, got {count}")
    english, french = zip(*found[:count], strict=True)
    return list(english), list(french)


def by_length(texts: Sequence[Words]) -> float:
    """How often one finds a text who knows its number of words, and guesses among those that have as many."""
    lengths = [len(words) for words in texts]
    return sum(1 / lengths.count(length) for length in lengths) / len(lengths)


def found_again(english: Tensor, french: Tensor) -> dict[str, float]:
    """The shares of sentences whose translation is nearest, both ways, as they are and with the means subtracted."""
    centred = [x - x.mean(0) for x in (english, french)]
    return {
        "to_french": retrieval_accuracy(english, french),
        "to_english": retrieval_accuracy(french, english),
        "to_french_centred": retrieval_accuracy(*centred),
        "to_english_centred": retrieval_accuracy(*centred[::-1]),
    }


def by_layer(encoder: SegmentEncoder, sides: Sequence[list[Words]], vocab: PretrainingVocab) -> list[dict[str, float]]:
    """`found_again` for the embeddings and after each layer."""
    english, french = (text_vectors(encoder, texts, vocab) for texts in sides)
    return [found_again(e, f) for e, f in zip(english, french, strict=True)]


def data(paragraphs: int, tested: int) -> tuple[Sequence[Paragraph], Sequence[Paragraph], PretrainingVocab]:
    """Paragraphs to train and to test with, and the vocabulary of both languages."""
    corpus = paragraph_corpus(train=paragraphs, valid=0, test=tested)
    vocab = PretrainingVocab([words for p in corpus.train for words in (p.source, p.target)])
    return corpus.train, corpus.test, vocab


def measure(
    kind: str, seed: int, paragraphs: int = PARAGRAPHS, tested: int = TESTED, count: int = CANDIDATES
) -> dict[str, Any]:
    """One model, trained and measured."""
    train, test, vocab = data(paragraphs, tested)
    torch.manual_seed(seed)
    encoder = SegmentEncoder(TransformerConfig(len(vocab), dropout=0.0, **SIZES))
    model = MaskedLanguageModel(encoder)
    texts, sides = texts_of(kind, train), candidates(test, count, train)
    # A pair is as long as two texts: of the same number of words in all, as many steps are made.
    size = BATCH_SIZE * 3 // 4 if kind == "pairs" else BATCH_SIZE
    batches = MaskedBatches(lambda epoch: texts, vocab, batch_size=size, seed=seed)
    before = by_layer(encoder, sides, vocab)
    history = fit(
        model,
        batches,
        epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        seed=seed,
        loss=masked_loss,
        device="cpu",
        progress=False,
    )
    after = by_layer(encoder, sides, vocab)
    masked = {}
    for language, words in (("english", [p.source for p in test]), ("french", [p.target for p in test])):
        masked[language] = masked_scores(model, MaskedBatches(whole_texts(words), vocab, batch_size=100, seed=0))
    each = max(1, len(history.losses) // 40)
    curve = [sum(part) / len(part) for part in _parts(history.losses, each)]
    print(f"{kind}, seed {seed}: {after}; {history.seconds:.0f} s", flush=True)
    about = {"kind": kind, "seed": seed, "parameters": sum(p.numel() for p in model.parameters())}
    about |= {"words": sum(len(t.first) + len(t.second) for t in texts), "steps": len(history.losses)}
    about |= {"train_seconds": history.seconds, "loss_every": each, "loss": curve, "masked": masked}
    return rounded(about | {"before": before, "after": after})


def spelled_alike(paragraphs: Sequence[Paragraph], sides: Sequence[list[Words]]) -> dict[str, Any]:
    """The words of both languages, and how many translations are found by their counts alone."""
    both = sorted({w for p in paragraphs for w in p.source} & {w for p in paragraphs for w in p.target})
    english, french = (torch.tensor([[float(t.count(w)) for w in both] for t in texts]) for texts in sides)
    shares = [sum(word in both for text in texts for word in text) / sum(map(len, texts)) for texts in sides]
    return {"words": both, "shares_of_tokens": shares, "found": found_again(english, french)}


def _parts(values: list[float], size: int) -> list[list[float]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def run(folder: Path) -> dict[str, Any]:
    """Every kind with every seed, and what words spelled alike would find."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    train, test, vocab = data(PARAGRAPHS, TESTED)
    sides = candidates(test, CANDIDATES, train)
    jobs = [(kind, seed) for seed in SEEDS for kind in KINDS]
    importable = importlib.import_module("recorded.bilingual").measure  # run.py loads this file under another name
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        runs = list(pool.map(importable, *zip(*jobs, strict=True)))
    training = {
        "epochs": EPOCHS,
        "batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        "sizes": SIZES,
        "threads": 1,
    }
    corpus = {"paragraphs": len(train), "vocabulary": len(vocab), "examples": [" ".join(side[0]) for side in sides]}
    alike = spelled_alike(train, sides)
    chances: dict[str, Any] = {"candidates": CANDIDATES, "chance": 1 / CANDIDATES, "by_length": by_length(sides[1])}
    chances["spelled_alike"] = alike
    return rounded({"training": training, "corpus": corpus, **chances, "runs": runs})
