"""Does plain attention that reads the whole paragraph find the sentences by itself, in three times the steps?

The model and the data are those of ``recorded/context.py``: form "plain", told "nothing".
"""

import importlib
from pathlib import Path
from typing import Any

import torch

SEEDS = (0, 1, 2)
TIMES = 3


def run(folder: Path) -> dict[str, Any]:
    """The curve of every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    context = importlib.import_module("recorded.context")
    runs = [context.measure("plain", "nothing", seed, TIMES) for seed in SEEDS]
    return {"steps": TIMES * context.STEPS, "runs": runs}
