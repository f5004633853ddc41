"""Does a query that has read the last word align better after a surprise? For chapter 2.

Bahdanau's model and Luong's, trained as in `luong`, are given the true words of the test set. Target words are sorted
by the probability that the model had given to the word before.
"""

from pathlib import Path
from typing import Any

import torch

from attn_core.data import Batches, Pair, Vocab
from attn_core.data.grammar import corpus
from attn_core.decode import forced_attention
from attn_core.metrics import true_sources
from attn_core.seq2seq import Seq2Seq
from attn_core.train import fit
from recorded.bahdanau import BATCH_SIZE, EPOCHS, LEARNING_RATE
from recorded.luong import build

SEEDS = (0, 1)
KINDS = ("Bahdanau", "concat")
EDGES = (0.0, 0.1, 0.3, 0.5, 0.9, 1.0)


@torch.no_grad()
def probabilities(model: Seq2Seq, pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> list[list[float]]:
    """Of each true target word, given the true words before it."""
    model.eval()
    found: list[list[float]] = []
    for batch in Batches(pairs, *vocabs, batch_size=250):
        logits = model(batch.source, batch.source_lengths, batch.target_in)
        given = logits.softmax(-1).gather(-1, batch.target_out[..., None])[..., 0]
        found += [row[:length].tolist() for row, length in zip(given, batch.target_lengths.tolist(), strict=True)]
    return found


def count(model: Seq2Seq, pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> torch.Tensor:
    """``(bins, 2)``: linked target words after the first, and how many of them are aligned wrong, by the probability of
    the word before."""
    counts = torch.zeros(len(EDGES) - 1, 2)
    given = probabilities(model, pairs, vocabs)
    for pair, weights, row in zip(pairs, forced_attention(model, pairs, *vocabs), given, strict=True):
        guesses = weights.argmax(1).tolist()
        for target, sources in true_sources(pair.links).items():
            if target == 0:
                continue
            place = sum(row[target - 1] >= edge for edge in EDGES[1:-1])
            counts[place] += torch.tensor([1.0, guesses[target] not in sources])
    return counts


def run(folder: Path) -> dict[str, Any]:
    """Both models with each seed; the errors of all seeds together."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus(test=3_000)
    pairs, test = list(data.train), list(data.test)
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    counts = {kind: torch.zeros(len(EDGES) - 1, 2) for kind in KINDS}
    for kind in KINDS:
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = build(kind, len(vocabs[0]), len(vocabs[1]))
            batches = Batches(pairs, *vocabs, batch_size=BATCH_SIZE, seed=seed)
            fit(model, batches, epochs=EPOCHS, learning_rate=LEARNING_RATE, seed=seed, progress=False)
            counts[kind] += count(model, test, vocabs)
    assert all(found[:, 0].all() for found in counts.values()), "a bin without words has no error"
    return {
        "edges": list(EDGES),
        "words": {kind: [int(n) for n, _ in found.tolist()] for kind, found in counts.items()},
        "errors": {kind: [round(wrong / n, 4) for n, wrong in found.tolist()] for kind, found in counts.items()},
    }
