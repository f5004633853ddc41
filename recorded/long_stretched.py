"""The long readings of `long_context` with two more ways to stretch positions: interpolation and NTK-aware scaling."""

from pathlib import Path
from typing import Any

import torch

from attn_book.published import smollm2_file
from attn_core.pretrained import load_gguf
from recorded import long_context

SEEDS = (0,)
WAYS = ("interpolation", "NTK-aware")


@torch.no_grad()
def run(folder: Path) -> dict[str, Any]:
    """A long reading for each way."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    model, tokenizer = load_gguf(smollm2_file())
    return {"long": [long_context.long_reading(model, tokenizer, way) for way in WAYS]}
