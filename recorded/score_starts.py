"""Why does the dot score align better than the general one, which can compute whatever it computes?

Luong's decoder as in `luong`, with the general score from other starts: from the identity, with which it begins as the
dot score; and from a random orthogonal matrix, which gives scores of the same size in other coordinates. And with dot
products divided by the root of their size, which begin small. Each is trained for the first half of the steps of
`luong`, with the learning rates that it has there, so that the curves can be compared.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from attn_book.corpus import corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.train import fit
from attn_book.train.schedules import cosine
from attn_core.scores import Dot, General, ScaledDot
from attn_core.seq2seq import Encoder, LuongDecoder, Seq2Seq
from recorded.bahdanau import BATCH_SIZE, DROPOUT, EPOCHS, LEARNING_RATE, rounded
from recorded.luong import scores

SEEDS = (0,)
KINDS = ("general, from identity", "general, from orthogonal", "dot, scaled")


def build(kind: str, source_size: int, target_size: int) -> Seq2Seq:
    """A model of `luong` with another start, or with scaled dot products."""
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {KINDS}, got {kind!r}")
    encoder = Encoder(source_size, embed_dim=64, hidden_dim=64, dropout=DROPOUT)
    score: Dot | General = ScaledDot() if kind == "dot, scaled" else General(128, 128)
    decoder = LuongDecoder(target_size, embed_dim=64, hidden_dim=128, memory_dim=128, dropout=DROPOUT, score=score)
    if isinstance(score, General):
        start = nn.init.eye_ if kind == "general, from identity" else nn.init.orthogonal_
        start(score.key_to_query.weight)
    return Seq2Seq(encoder, decoder)


def measure(kind: str, seed: int, parts: dict[str, list[Pair]], vocabs: tuple[Vocab, Vocab]) -> dict[str, Any]:
    """The curves of one model on held-out sentences."""
    torch.manual_seed(seed)
    model = build(kind, len(vocabs[0]), len(vocabs[1]))
    batches = Batches(parts["train"], *vocabs, batch_size=BATCH_SIZE, seed=seed)
    history = fit(
        model,
        batches,
        epochs=EPOCHS // 2,
        schedule=cosine(EPOCHS * len(batches), peak=LEARNING_RATE),
        seed=seed,
        validate=lambda model: scores(model, parts["valid"], vocabs),
        validate_every=len(batches) // 2,
        progress=False,
    )
    print(f"{kind}, seed {seed}: {history.validation[-1]}", flush=True)
    return rounded({"model": kind, "seed": seed, "curve": history.validation})


def run(folder: Path) -> dict[str, Any]:
    """Every model with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    vocabs = (Vocab(p.source for p in data.train), Vocab(p.target for p in data.train))
    parts = {"train": list(data.train), "valid": list(data.valid)[:200]}
    return {"runs": [measure(kind, seed, parts, vocabs) for seed in SEEDS for kind in KINDS]}
