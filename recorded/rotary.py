"""The Transformer of `architectures` with rotary positions, and with more passes over the pairs.

That script gave every model the four passes that suited the recurrent one. Here the Transformer, without dropout and
with the learning rate chosen there, is trained with rotary positions for twice as many.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.train import fit
from attn_book.translation import translate
from attn_core.positions import Rotary
from attn_core.transformer import Transformer, TransformerConfig
from recorded import bahdanau
from recorded.architectures import SIZES, by_length, quality

SEEDS = (0, 1, 2)
LEARNING_RATE = 4e-3
PASSES = 8
"""Over the pairs."""
VALID = 200


def build(positions: str, vocabs: tuple[Vocab, Vocab]) -> Transformer:
    """A Transformer whose positions are added to the embeddings, or rotate queries and keys of self-attention."""
    config = TransformerConfig(len(vocabs[1]), len(vocabs[0]), **SIZES, dropout=0.0, norm_first=True)
    head_dim = config.model_dim // config.num_heads
    return Transformer(config, positions=partial(Rotary, head_dim) if positions == "rotary" else None)


def words_of(model: Any, pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> list[list[str]]:
    """Greedy translations."""
    return [t.words for t in translate(model, [p.source for p in pairs], *vocabs)]


def measure(
    model: Any, data: dict[str, list[Pair]], vocabs: tuple[Vocab, Vocab], seed: int, passes: int, rate: float
) -> dict[str, Any]:
    """Train the model and translate held-out sentences, after every pass and at the end."""
    valid, test = data["valid"], data["test"]
    batches = Batches(data["train"], *vocabs, batch_size=bahdanau.BATCH_SIZE, seed=seed)
    history = fit(
        model,
        batches,
        epochs=passes,
        learning_rate=rate,
        seed=seed,
        device="cpu",
        validate=lambda model: quality(words_of(model, valid, vocabs), valid),
        validate_every=len(batches),
        progress=False,
    )
    words = words_of(model, test, vocabs)
    return {
        "seed": seed,
        "passes": passes,
        "learning_rate": rate,
        "parameters": sum(p.numel() for p in model.parameters()),
        "curve": history.validation,
        # As in `bahdanau`: the first 1,000 test sentences, and all of them by length.
        "test": quality(words[:1_000], test[:1_000]),
        "by_length": by_length(words, test),
        "structures": quality(words_of(model, data["structures"], vocabs), data["structures"]),
    }


def read() -> tuple[dict[str, list[Pair]], tuple[Vocab, Vocab]]:
    """The pairs that every model here and in `bahdanau` has, and their vocabularies."""
    found = corpus(test=3_000)
    data = {part: list(getattr(found, part)) for part in ("train", "valid", "test", "structures")}
    data["valid"] = data["valid"][:VALID]
    return data, (Vocab(p.source for p in data["train"]), Vocab(p.target for p in data["train"]))


def run(folder: Path) -> dict[str, Any]:
    """Rotary positions with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data, vocabs = read()
    runs = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        runs.append(measure(build("rotary", vocabs), data, vocabs, seed, PASSES, LEARNING_RATE))
        print(seed, runs[-1]["test"], runs[-1]["by_length"][-1], flush=True)
    training = {"pairs": len(data["train"]), "batch_size": bahdanau.BATCH_SIZE, **SIZES, "dropout": 0.0, "threads": 1}
    return bahdanau.rounded({"training": training, "runs": runs})
