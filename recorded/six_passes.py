"""The recurrent translator of `bahdanau`, and the small Transformer of `translators` with its sinusoids, with the six
passes that `rotary` has."""

from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import corpus
from attn_book.data import Batches, Vocab
from attn_book.train import fit
from attn_book.translation import translate
from recorded import bahdanau, translators
from recorded.architectures import by_length, quality

SEEDS = (0, 1, 2)
PASSES = 6


def build(kind: str, sizes: tuple[int, int]) -> Any:
    """One of the models; ``sizes`` are those of the vocabularies."""
    return bahdanau.build("two-way", *sizes) if kind == "recurrent" else translators.build("transformer", *sizes)


def run(folder: Path) -> dict[str, Any]:
    """Both models, tested on the sentences of `architectures`."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus(test=3_000)
    pairs, test, structures = list(data.train), list(data.test), list(data.structures)
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    sizes = len(vocabs[0]), len(vocabs[1])
    runs: list[dict[str, Any]] = []
    for seed in SEEDS:
        for kind, rate in (("recurrent", bahdanau.LEARNING_RATE), ("sinusoidal", 4e-3)):
            torch.manual_seed(seed)
            model = build(kind, sizes)
            batches = Batches(pairs, *vocabs, batch_size=bahdanau.BATCH_SIZE, seed=seed)
            fit(model, batches, epochs=PASSES, learning_rate=rate, seed=seed, device="cpu", progress=False)
            words, shifted = (
                [t.words for t in translate(model, [p.source for p in part], *vocabs)] for part in (test, structures)
            )
            found: dict[str, Any] = {"model": kind, "seed": seed, "learning_rate": rate}
            found |= {"parameters": sum(p.numel() for p in model.parameters())}
            found |= {"test": quality(words[:1_000], test[:1_000]), "by_length": by_length(words, test)}
            runs.append(found | {"structures": quality(shifted, structures)})
            print(kind, seed, found["test"], found["by_length"][-1], flush=True)
    return bahdanau.rounded({"training": {"passes": PASSES, "threads": 1}, "runs": runs})
