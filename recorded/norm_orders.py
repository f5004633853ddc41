"""The norm before or after each sublayer, with and without warm-up, at several learning rates.

Six-layer translators as in `ablations`, which has the highest learning rate.
"""

from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import corpus
from attn_core.data import Vocab
from attn_core.transformer import Transformer, TransformerConfig
from recorded.ablations import ORDERED, ORDERED_TRAINING, ORDERS, SIZES, WARMUPS, curve
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
RATES = (2.5e-4, 1e-3, 2e-3)


def run(folder: Path) -> dict[str, Any]:
    """Both orders, with and without warm-up, at every rate, with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    pairs, valid = list(data.train), list(data.valid)[:200]
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    runs: list[dict[str, Any]] = []
    for seed in SEEDS:
        for rate in RATES:
            for order, norm_first in ORDERS.items():
                for name, warmup in WARMUPS.items():
                    torch.manual_seed(seed)
                    sizes: dict[str, Any] = {**SIZES, **ORDERED, "norm_first": norm_first}
                    model = Transformer(TransformerConfig(len(vocabs[1]), len(vocabs[0]), **sizes))
                    training: dict[str, Any] = {**ORDERED_TRAINING, "learning_rate": rate, "warmup": warmup}
                    steps, losses = curve(model, seed, pairs, valid, vocabs, **training)
                    runs.append({"order": order, "warmup": name, "learning_rate": rate, "seed": seed, "loss": losses})
                    print(order, name, rate, seed, losses[-1], flush=True)
    about = {**SIZES, **ORDERED, **ORDERED_TRAINING, "learning_rate": list(RATES), "warmup": WARMUPS, "threads": 1}
    return rounded({"training": about, "steps": steps, "runs": runs})
