"""Rotary positions stretched to four times the length that a model was trained at, in three ways.

The models and both tasks are those of ``positions``. Rotary models trained at length 32 are tested at 32 and 128 with
their positions as they are, interpolated, NTK-aware and by YaRN, as they are and after some further steps at 128.
"""

import copy
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attn_core.positions import Rotary
from recorded import positions
from recorded.bahdanau import rounded
from recorded.positions import HEADS, MODEL_DIM, TESTED, TRAINED, Block, Parts, PlacedModel

SEEDS = (0, 1, 2)
METHODS = ("none", "interpolation", "NTK-aware", "YaRN")
FACTOR = max(TESTED) // TRAINED
RATE, FURTHER_RATE, FURTHER_STEPS = 1e-2, 3e-3, 60
STEPS = {"words": 500, "copying": 300}


class Stretched(Rotary):
    """Rotary positions for windows of ``FACTOR`` times the length that a model was trained at.

    Interpolation divides every frequency by the factor. NTK-aware scaling raises the base so that only the lowest
    frequency is divided by it. YaRN divides those that turn less than once in a training window, keeps those that turn
    more than ``MOST`` times, goes from one to the other in between, and sharpens the softmax. ``MOST`` is 32 in the
    paper; in 32 tokens even the highest frequency turns only five times.
    """

    MOST = 4

    def __init__(self, method: str) -> None:
        super().__init__(MODEL_DIM // HEADS)
        size = self.head_dim
        base = self.base * FACTOR ** (size / (size - 2)) if method == "NTK-aware" else self.base
        self.frequencies = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        self.scale = 1.0
        if method == "interpolation":
            self.frequencies /= FACTOR
        elif method == "YaRN":
            turns = TRAINED * self.frequencies / (2 * math.pi)
            kept = ((turns - 1) / (self.MOST - 1)).clamp(0, 1)
            self.frequencies *= kept + (1 - kept) / FACTOR
            self.scale = 0.1 * math.log(FACTOR) + 1

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys ``(B, H, n, D)`` at ``positions (n,)``, rotated and scaled."""
        angles = positions[:, None].double() * self.frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        return self.scale * torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def stretched(trained: PlacedModel, task: str, method: str, seed: int, steps: int, words: Parts) -> PlacedModel:
    """A copy of the model with its positions stretched, and trained for some further steps at the full length."""
    model = copy.deepcopy(trained)
    for block in model.blocks:
        assert isinstance(block, Block)
        block.attention.positions = Stretched(method)
    if steps:
        positions.train(model, task, words["train"], seed, FURTHER_RATE, steps, max(TESTED))
    return model


def run(folder: Path) -> dict[str, Any]:
    """Every method on both tasks with every seed, before and after the further steps."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    words, vocab = positions.parts()
    training = {
        "trained_at": TRAINED,
        "factor": FACTOR,
        "steps": STEPS,
        "rate": RATE,
        "batch_size": positions.BATCH_SIZE,
        "further_steps": FURTHER_STEPS,
        "further_rate": FURTHER_RATE,
        "beta": Stretched.MOST,
        "threads": 1,
    }
    runs = []
    for task, steps in STEPS.items():
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = PlacedModel(len(vocab) if task == "words" else positions.LETTERS, "rotary")
            positions.train(model, task, words["train"], seed, RATE, steps)
            for method in METHODS:
                for further in (0, FURTHER_STEPS):
                    found = positions.test(stretched(model, task, method, seed, further, words), task, words)
                    runs.append({"task": task, "method": method, "seed": seed, "further": further, "test": found})
                    print(rounded(runs[-1]), flush=True)
    return rounded({"training": training, "runs": runs})
