"""With and without attention: quality, alignment and sentence length.

Four models of like size, trained alike on the grammar's 24,000 pairs: a fixed context; Bahdanau's attention over an
encoder that reads one way, and over one that reads both ways; and the last again from French to English.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attn_book.alignment import alignment_error, diagonal_guess, true_sources
from attn_book.corpus import EXAMPLE, corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.metrics import bleu, exact_match
from attn_book.teacher_forcing import teacher_forced_attention
from attn_book.train import History, fit
from attn_book.translation import translate
from attn_core.seq2seq import BahdanauDecoder, Encoder, FixedContextDecoder, Seq2Seq

SEEDS = (0, 1, 2)
EPOCHS = 4
BATCH_SIZE = 32
LEARNING_RATE = 5e-3
DROPOUT = 0.1
SIZES: dict[str, Any] = {"embed_dim": 64, "dropout": DROPOUT}
LENGTHS = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 25), (26, 50))


def build(kind: str, source_size: int, target_size: int) -> Seq2Seq:
    """A model with 128 recurrent units a side; the fixed context gets more, so that no model is smaller for lacking
    the attention's own weights."""
    if kind == "fixed":
        encoder = Encoder(source_size, **SIZES, hidden_dim=72)
        return Seq2Seq(encoder, FixedContextDecoder(target_size, **SIZES, hidden_dim=144, memory_dim=144))
    two_way = kind == "two-way"
    encoder = Encoder(source_size, **SIZES, hidden_dim=64 if two_way else 128, bidirectional=two_way)
    return Seq2Seq(encoder, BahdanauDecoder(target_size, **SIZES, hidden_dim=128, memory_dim=128))


def scores(model: Seq2Seq, pairs: list[Pair], vocabs: tuple[Vocab, Vocab], *, beam_size: int = 1) -> dict[str, float]:
    """BLEU and exact match in percent; where the model attends, alignment error as a share."""
    found = [t.words for t in translate(model, [p.source for p in pairs], *vocabs, beam_size=beam_size)]
    wanted = [p.target for p in pairs]
    result = {"bleu": bleu(found, wanted), "exact": 100 * exact_match(found, wanted)}
    if isinstance(model.decoder, BahdanauDecoder):
        maps = teacher_forced_attention(model, pairs, *vocabs)
        result["alignment_error"] = alignment_error(maps, [p.links for p in pairs])
        result["late"] = one_late(maps, pairs)
    return result


def one_late(maps: list[torch.Tensor], pairs: list[Pair]) -> float:
    """The share of linked target words whose most attended source word belongs, truly, to the word before only."""
    late = total = 0
    for weights, pair in zip(maps, pairs, strict=True):
        true = true_sources(pair.links)
        guesses = weights.argmax(1).tolist()
        for target, sources in true.items():
            total += 1
            late += guesses[target] not in sources and guesses[target] in true.get(target - 1, set())
    return late / total


def by_length(model: Seq2Seq, pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> list[dict[str, float]]:
    """BLEU and exact match among sentences of like source length."""
    rows = []
    for low, high in LENGTHS:
        chosen = [p for p in pairs if low <= len(p.source) <= high]
        found = scores(model, chosen, vocabs)
        rows.append({"from": low, "to": high, "sentences": len(chosen), "bleu": found["bleu"], "exact": found["exact"]})
    return rows


def train(
    kind: str, seed: int, pairs: list[Pair], vocabs: tuple[Vocab, Vocab], validate: Callable[..., dict[str, float]]
) -> tuple[Seq2Seq, History]:
    """A trained model and its history."""
    torch.manual_seed(seed)
    model = build(kind, len(vocabs[0]), len(vocabs[1]))
    batches = Batches(pairs, *vocabs, batch_size=BATCH_SIZE, seed=seed)
    every = len(batches) // 4
    history = fit(
        model,
        batches,
        epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        seed=seed,
        validate=validate,
        validate_every=every,
        progress=False,
    )
    return model, history


def measure(kind: str, seed: int, *, reverse: bool = False) -> dict[str, Any]:
    """One model, trained and measured on held-out sentences."""
    data = corpus(test=3_000)
    parts = {part: list(getattr(data, part)) for part in ("train", "valid", "test", "structures")}
    example = EXAMPLE
    if reverse:
        parts = {part: [pair.reversed() for pair in pairs] for part, pairs in parts.items()}
        example = EXAMPLE.reversed()
    vocabs = (Vocab(p.source for p in parts["train"]), Vocab(p.target for p in parts["train"]))
    valid, test = parts["valid"][:300], parts["test"][:1_000]
    model, history = train(kind, seed, parts["train"], vocabs, lambda m: scores(m, valid, vocabs))
    started = time.perf_counter()
    result = {
        "model": kind,
        "direction": "fr-en" if reverse else "en-fr",
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "train_seconds": history.seconds,
        "curve": history.validation,
        "test": scores(model, test, vocabs),
        "test_beam_4": scores(model, test, vocabs, beam_size=4),
        "structures": scores(model, parts["structures"], vocabs),
        "by_length": by_length(model, parts["test"], vocabs),
        "example": " ".join(translate(model, [example.source], *vocabs)[0].words),
    }
    print(
        f"{kind} {result['direction']} seed {seed}: {result['test']}; {time.perf_counter() - started:.0f} s to score",
        flush=True,
    )
    return rounded(result)


def rounded(value: Any) -> Any:
    """Four digits are more than the seeds agree on."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def run(folder: Path) -> dict[str, Any]:
    """Every model with every seed, and what a straight diagonal would score."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    runs = [measure(kind, seed) for kind in ("fixed", "one-way", "two-way") for seed in SEEDS]
    runs += [measure("two-way", seed, reverse=True) for seed in SEEDS]
    test = corpus().test
    guesses = [diagonal_guess(len(p.source), len(p.target)) for p in test]
    diagonal = alignment_error(guesses, [p.links for p in test])
    training = {
        "epochs": EPOCHS,
        "batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        "dropout": DROPOUT,
        "threads": 1,
    }
    return {"training": training, "diagonal_error": round(diagonal, 4), "runs": runs}
