"""Does a query that has read the last word align better after a surprise?

Bahdanau's model and Luong's, trained as in `luong`, are given the true words of the test set. Target words are sorted
by the probability that the models, on average, had given to the word before.
"""

from pathlib import Path
from typing import Any

import torch

from attn_book.alignment import true_sources
from attn_book.corpus import corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.teacher_forcing import teacher_forced_attention
from attn_book.train import fit
from attn_core.seq2seq import Seq2Seq
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


def wrong(model: Seq2Seq, pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> list[dict[int, bool]]:
    """Of each sentence: its linked target words, and whether the most attended source word is not a true one."""
    found = []
    for pair, weights in zip(pairs, teacher_forced_attention(model, pairs, *vocabs), strict=True):
        guesses = weights.argmax(1).tolist()
        found.append({t: guesses[t] not in sources for t, sources in true_sources(pair.links).items()})
    return found


def sort(given: list[list[float]], errors: list[dict[int, bool]]) -> torch.Tensor:
    """``(bins, 2)``: the linked target words after the first, and how many are aligned wrong, by the probability of the
    word before."""
    counts = torch.zeros(len(EDGES) - 1, 2)
    for row, words in zip(given, errors, strict=True):
        for target, is_wrong in words.items():
            if target > 0:
                place = sum(row[target - 1] >= edge for edge in EDGES[1:-1])
                counts[place] += torch.tensor([1.0, is_wrong])
    return counts


def run(folder: Path) -> dict[str, Any]:
    """Both models with each seed. Words are sorted by the mean of all models' probabilities, the same for all."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus(test=3_000)
    pairs, test = list(data.train), list(data.test)
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    given: list[list[list[float]]] = []
    errors: dict[str, list[list[dict[int, bool]]]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = build(kind, len(vocabs[0]), len(vocabs[1]))
            batches = Batches(pairs, *vocabs, batch_size=BATCH_SIZE, seed=seed)
            fit(model, batches, epochs=EPOCHS, learning_rate=LEARNING_RATE, seed=seed, progress=False)
            given.append(probabilities(model, test, vocabs))
            errors[kind].append(wrong(model, test, vocabs))
    mean = [[sum(ps) / len(ps) for ps in zip(*rows, strict=True)] for rows in zip(*given, strict=True)]
    counts = {kind: sum((sort(mean, found) for found in runs), torch.zeros(())) for kind, runs in errors.items()}
    return {
        "edges": list(EDGES),
        "words": [int(n) // len(SEEDS) for n, _ in counts[KINDS[0]].tolist()],
        "errors": {kind: [round(w / max(n, 1), 4) for n, w in found.tolist()] for kind, found in counts.items()},
    }
