"""The recurrent translator of `bahdanau` with ten passes over the pairs instead of four, for the chapter on the
Transformer, where the other model gets as many."""

from pathlib import Path
from typing import Any

import torch

from recorded import bahdanau
from recorded.rotary import measure, read

SEEDS = (0, 1, 2)
PASSES = 10


def run(folder: Path) -> dict[str, Any]:
    """The model with the bidirectional encoder, with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data, vocabs = read()
    runs = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = bahdanau.build("two-way", len(vocabs[0]), len(vocabs[1]))
        runs.append(measure(model, data, vocabs, seed, PASSES, bahdanau.LEARNING_RATE))
        print(seed, runs[-1]["test"], runs[-1]["by_length"][-1], flush=True)
    training = {"pairs": len(data["train"]), "batch_size": bahdanau.BATCH_SIZE, **bahdanau.SIZES, "threads": 1}
    return bahdanau.rounded({"training": training, "runs": runs})
