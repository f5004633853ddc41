"""Hard attention from a warm start: soft attention is trained first, and then made to choose one word.

Bahdanau's model is trained as in `luong`. Its parameters are then given to hard attention, which is measured at once,
and trained by REINFORCE from there. `luong` has the runs from random parameters.
"""

from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.train import fit, reinforce_loss
from recorded.bahdanau import BATCH_SIZE, DROPOUT, EPOCHS, LEARNING_RATE, rounded
from recorded.luong import build, scores

SEEDS = (0,)
HARD_EPOCHS = 1
HARD_LEARNING_RATE = 1e-3


def measure(seed: int, parts: dict[str, list[Pair]], vocabs: tuple[Vocab, Vocab]) -> dict[str, Any]:
    """Soft attention, the same parameters choosing one word, and these after REINFORCE."""
    torch.manual_seed(seed)
    soft = build("Bahdanau", len(vocabs[0]), len(vocabs[1]))
    hard = build("hard", len(vocabs[0]), len(vocabs[1]))
    batches = Batches(parts["train"], *vocabs, batch_size=BATCH_SIZE, seed=seed)
    fit(soft, batches, epochs=EPOCHS, learning_rate=LEARNING_RATE, seed=seed, progress=False)
    hard.load_state_dict(soft.state_dict())
    result: dict[str, Any] = {"seed": seed}
    for name, model in (("soft", soft), ("hard, not trained", hard)):
        result[name] = scores(model.eval(), parts["test"], vocabs)
        print(f"{name}: {result[name]}", flush=True)
    history = fit(
        hard,
        batches,
        epochs=HARD_EPOCHS,
        learning_rate=HARD_LEARNING_RATE,
        seed=seed,
        loss=reinforce_loss,
        validate=lambda model: scores(model, parts["valid"], vocabs),
        validate_every=len(batches) // 3,
        progress=False,
    )
    result["curve"] = history.validation
    result["hard, trained"] = scores(hard, parts["test"], vocabs)
    print(f"hard, trained: {result['hard, trained']}; {history.seconds:.0f} s", flush=True)
    return rounded(result)


def run(folder: Path) -> dict[str, Any]:
    """Each seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    vocabs = (Vocab(p.source for p in data.train), Vocab(p.target for p in data.train))
    parts = {part: list(getattr(data, part)) for part in ("train", "valid", "test")}
    parts["valid"] = parts["valid"][:200]
    training = {
        "soft_epochs": EPOCHS,
        "soft_learning_rate": LEARNING_RATE,
        "hard_epochs": HARD_EPOCHS,
        "hard_learning_rate": HARD_LEARNING_RATE,
        "batch_size": BATCH_SIZE,
        "dropout": DROPOUT,
        "threads": 1,
    }
    return {"training": training, "runs": [measure(seed, parts, vocabs) for seed in SEEDS]}
