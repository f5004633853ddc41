"""The fixed-context model of `bahdanau` at other learning rates.

`bahdanau` trains every model at one rate. Whether that rate holds the model without attention back is a question of
its own: here are the same model, the same data and the same number of steps at three other rates. Where one of them
wins on the validation sentences, it gets the seeds that the other models have.
"""

from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.train import fit
from recorded import bahdanau

SEEDS = (0, 1, 2)
RATES = (1e-3, 2.5e-3, 1e-2)


def measure(rate: float, seed: int, parts: dict[str, list[Pair]], vocabs: tuple[Vocab, Vocab]) -> dict[str, Any]:
    """The fixed-context model, trained at this rate and measured as `bahdanau` measures it."""
    torch.manual_seed(seed)
    model = bahdanau.build("fixed", len(vocabs[0]), len(vocabs[1]))
    batches = Batches(parts["train"], *vocabs, batch_size=bahdanau.BATCH_SIZE, seed=seed)
    history = fit(model, batches, epochs=bahdanau.EPOCHS, learning_rate=rate, seed=seed, progress=False)
    result = {
        "learning_rate": rate,
        "seed": seed,
        "train_loss": sum(history.losses[-100:]) / 100,
        "valid": bahdanau.scores(model, parts["valid"][:300], vocabs),
        "by_length": bahdanau.by_length(model, parts["test"], vocabs),
    }
    print(rate, seed, result["valid"], flush=True)
    return bahdanau.rounded(result)


def run(folder: Path) -> dict[str, Any]:
    """One seed at each rate, and the other seeds at a rate that beats the recorded one."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus(test=3_000)
    parts = {part: list(getattr(data, part)) for part in ("train", "valid", "test")}
    vocabs = (Vocab(p.source for p in parts["train"]), Vocab(p.target for p in parts["train"]))
    runs = [measure(rate, SEEDS[0], parts, vocabs) for rate in (bahdanau.LEARNING_RATE, *RATES)]
    best = max(runs, key=lambda found: found["valid"]["bleu"])["learning_rate"]
    if best != bahdanau.LEARNING_RATE:
        runs += [measure(best, seed, parts, vocabs) for seed in SEEDS[1:]]
    return {"best": best, "runs": runs}
