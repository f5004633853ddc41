"""Where two models look that translate alike: encoders that read one way and both ways."""

from collections import Counter
from pathlib import Path
from typing import Any

import torch

from attn_book.alignment import true_sources
from attn_book.corpus import EXAMPLE, corpus
from attn_book.data import Pair, Vocab
from attn_book.teacher_forcing import teacher_forced_attention
from recorded.bahdanau import train

SEEDS = (0,)


def places(maps: list[torch.Tensor], pairs: list[Pair]) -> dict[str, float]:
    """Where the most attended source word lies, as shares of the target words that have a true link."""
    found: Counter[str] = Counter()
    for weights, pair in zip(maps, pairs, strict=True):
        guesses = weights.argmax(1).tolist()
        for target, sources in true_sources(pair.links).items():
            found[place(guesses[target], sources, len(pair.source))] += 1
    total = sum(found.values())
    return {name: round(count / total, 4) for name, count in found.most_common()}


def place(guess: int, true: set[int], length: int) -> str:
    """In words, where a guess lies against the true source words; <eos> stands at ``length``."""
    if guess in true:
        return "true"
    if guess - 1 in true:
        return "one to the right"
    if guess + 1 in true:
        return "one to the left"
    if guess >= length - 1:
        return "the full stop or <eos>"
    return "further right" if guess > max(true) else "further left" if guess < min(true) else "between"


def run(folder: Path) -> dict[str, Any]:
    """Train both, tell where they look, and keep their maps of the example."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    pairs, test = list(data.train), list(data.test)
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    result: dict[str, Any] = {}
    for kind in ("one-way", "two-way"):
        model, _ = train(kind, SEEDS[0], pairs, vocabs, lambda model: {})
        (example,) = teacher_forced_attention(model, [EXAMPLE], *vocabs)
        result[kind] = {
            "places": places(teacher_forced_attention(model, test, *vocabs), test),
            "example": [[round(weight, 4) for weight in row] for row in example.tolist()],
        }
    return result
