"""LoRA on MiniLM at a rate at which it learns: `recorded/tuning.py` found that 1e-3 is too small for so few steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from recorded import transfer, tuning
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
SETTINGS = [(tuning.LABELS, tuning.EPOCHS, 5e-3, True), (30, tuning.LONG, 5e-3, True)]


def run(
    folder: Path,
    plan: transfer.Plan = tuning.PLAN,
    seeds: Sequence[int] = SEEDS,
    settings: Sequence[Any] = SETTINGS,
    tested: int = tuning.TESTED,
    count: int = tuning.PARAPHRASES,
) -> dict[str, Any]:
    """Both settings with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    parts = transfer.World(plan).tasks["sense"]
    found = tuning.minilm({"train": parts["train"], "test": parts["test"][:tested]}, settings, seeds, count)
    return rounded({"before": found["before"], "tuned": found["tuned"]})
