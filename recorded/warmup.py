"""A depth at which warm-up decides whether a post-norm Transformer learns: three layers, both orders, three seeds."""

from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import corpus
from attn_book.data import Vocab
from attn_core.transformer import Transformer, TransformerConfig
from recorded.ablations import BATCH_SIZE, ORDERED_TRAINING, ORDERS, SIZES, curve
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
NUM_LAYERS = 3
WARMUPS = {100: 0.25, 0: 0.0}
"""Steps of warm-up, and their share of all steps."""


def run(folder: Path) -> dict[str, Any]:
    """Both orders of the norm, with and without warm-up, with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    pairs, valid = list(data.train), list(data.valid)[:200]
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    runs: list[dict[str, Any]] = []
    for seed in SEEDS:
        for order, norm_first in ORDERS.items():
            for warm, share in WARMUPS.items():
                torch.manual_seed(seed)
                sizes: dict[str, Any] = {**SIZES, "num_layers": NUM_LAYERS, "norm_first": norm_first}
                model = Transformer(TransformerConfig(len(vocabs[1]), len(vocabs[0]), **sizes))
                steps, losses = curve(model, seed, pairs, valid, vocabs, **ORDERED_TRAINING, warmup=share)
                runs.append({"order": order, "warmup_steps": warm, "seed": seed, "loss": losses})
                print(order, warm, seed, losses[-1], flush=True)
    training = {**SIZES, "num_layers": NUM_LAYERS, **ORDERED_TRAINING, "batch_size": BATCH_SIZE, "threads": 1}
    return rounded({"training": training, "steps": steps, "runs": runs})
