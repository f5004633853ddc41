"""The two translators of `architectures` with twice as many passes over the pairs: the recurrent one, and the
Transformer with sinusoidal positions."""

from pathlib import Path
from typing import Any

import torch

from recorded import bahdanau, rotary

SEEDS = (0, 1, 2)


def run(folder: Path) -> dict[str, Any]:
    """Both models with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data, vocabs = rotary.read()
    runs = []
    for seed in SEEDS:
        for kind in ("sinusoidal", "recurrent"):
            torch.manual_seed(seed)
            if kind == "recurrent":
                model: Any = bahdanau.build("two-way", len(vocabs[0]), len(vocabs[1]))
                rate = bahdanau.LEARNING_RATE
            else:
                model, rate = rotary.build(kind, vocabs), rotary.LEARNING_RATE
            runs.append({"model": kind, **rotary.measure(model, data, vocabs, seed, rotary.PASSES, rate)})
            print(kind, seed, runs[-1]["test"], runs[-1]["by_length"][-1], flush=True)
    return bahdanau.rounded({"training": {"passes": rotary.PASSES, "threads": 1}, "runs": runs})
