"""LoRA on MiniLM: at queries and values, and at all linear layers, with about equally many parameters and with more.

The task and the schedule are those of `recorded/tuning.py`. Rank 4 at queries and values trains 36,864 parameters of
the encoder, and rank 1 at all linear layers 41,472.

Source: Hu et al. 2022 (queries and values); Dettmers et al. 2023 (all linear layers).
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from recorded import transfer, tuning
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
RATES = (1e-3, 5e-3)
# Name, rank, whether at all linear layers.
KINDS = (("queries and values", 4, False), ("all linear layers", 1, True), ("all linear layers", 4, True))


def run(
    folder: Path,
    plan: transfer.Plan = tuning.PLAN,
    seeds: Sequence[int] = SEEDS,
    rates: Sequence[float] = RATES,
    tested: int = tuning.TESTED,
    count: int = tuning.PARAPHRASES,
) -> dict[str, Any]:
    """Each kind at each rate, with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    parts = transfer.World(plan).tasks["sense"]
    texts = {"train": parts["train"], "test": parts["test"][:tested]}
    settings = [(tuning.LABELS, tuning.EPOCHS, rate, True) for rate in rates]
    tuned = []
    for where, rank, everywhere in KINDS:
        adapt = partial(tuning.with_lora, rank=rank, everywhere=everywhere)
        found = tuning.minilm(texts, settings, seeds, count, adapt)
        tuned += [{"where": where, "rank": rank} | one for one in found["tuned"]]
    return rounded({"before": found["before"], "tuned": tuned})
