"""A needle test for small models: trained on texts of 64 tokens, tested on texts of up to 2,048.

A text is noise with four pairs of a key and a value at random places. At its end the four keys come once more, and
after each of them its value is to be predicted, one of 16. A key and its value are neighbours, so a head of the first
layer has to look at the token before, and a head of the second has to find the key: an induction head.

The models have two layers of attention and differ in positions and windows alone.
"""

import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.induction import AttentionOnly
from attn_core import SlidingWindow
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import ALiBi, Rotary, YaRN
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
LENGTH, TESTED = 64, (64, 128, 256, 512, 1024, 2048)
NOISE, SYMBOLS, PAIRS = 32, 16, 4
SIZES = {"model_dim": 64, "num_heads": 2}
HEAD_DIM = 32
STEPS, ROWS, TEST_ROWS, RATE, WARMUP = 1500, 32, 64, 5e-3, 50
NEAR = 15
"""Keys before a query that a window holds."""
KINDS = ("rotary", "none", "ALiBi", "windows", "window below, none above")


def build(kind: str) -> AttentionOnly:
    """A model of two layers, rotary and full unless its kind says otherwise."""
    model = AttentionOnly(NOISE + 2 * SYMBOLS, **SIZES, num_layers=2)
    below, above = model.layers
    for layer in (below, above):
        assert isinstance(layer, MultiHeadAttention)
        if kind == "ALiBi":
            layer.positions = ALiBi(SIZES["num_heads"])
        if kind == "none" or (kind == "window below, none above" and layer is above):
            layer.positions = None
        if kind == "windows" or (kind == "window below, none above" and layer is below):
            layer.mechanism = SlidingWindow(NEAR, 0)
    return model


def draw(rows: int, length: int, by: torch.Generator) -> tuple[Tensor, Tensor]:
    """Texts ``(rows, length)``, and the values that were paired with the keys asked for, ``(rows, PAIRS)``.

    The last ``2 * PAIRS`` tokens are each key with its value.
    """
    room = (length - 2 * PAIRS) // 2
    tokens = torch.randint(NOISE, (rows, length), generator=by)
    places = 2 * torch.rand(rows, room, generator=by).topk(PAIRS).indices
    places += torch.randint(2, (rows, 1), generator=by) * (places < 2 * room - 1)
    keys = NOISE + torch.rand(rows, SYMBOLS, generator=by).topk(PAIRS).indices
    values = torch.randint(SYMBOLS, (rows, PAIRS), generator=by)
    tokens.scatter_(1, places, keys).scatter_(1, places + 1, NOISE + SYMBOLS + values)
    tokens[:, -2 * PAIRS :: 2], tokens[:, 1 - 2 * PAIRS :: 2] = keys, NOISE + SYMBOLS + values
    return tokens, values


def answers(model: AttentionOnly, tokens: Tensor) -> Tensor:
    """The logits of the values at the keys that are asked for: ``(rows, PAIRS, SYMBOLS)``."""
    return model(tokens)[:, -2 * PAIRS :: 2, NOISE + SYMBOLS :]


@torch.no_grad()
def test(model: AttentionOnly, length: int) -> float:
    """The share of right answers."""
    tokens, values = draw(TEST_ROWS, length, torch.Generator().manual_seed(1234))
    found = torch.cat([answers(model, part).argmax(-1) for part in tokens.split(16)])
    return (found == values).float().mean().item()


def measure(kind: str, seed: int) -> dict[str, Any]:
    """One model, trained, and tested at every length; a rotary one also after it was stretched for each."""
    torch.manual_seed(seed)
    model, by, started = build(kind), torch.Generator().manual_seed(seed), time.process_time()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    for step in range(STEPS):
        falling = 0.5 * (1 + math.cos(math.pi * step / STEPS))
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / WARMUP) * falling
        tokens, values = draw(ROWS, LENGTH, by)
        loss = functional.cross_entropy(answers(model, tokens).flatten(0, 1), values.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    result = {"kind": kind, "seed": seed, "loss": loss.item()}
    result["right"] = {str(length): test(model, length) for length in TESTED}
    if kind == "rotary":
        result["stretched"] = {}
        for length in TESTED:
            scaling = YaRN(length / LENGTH, LENGTH, fast=4)  # the fastest pair makes ten turns in training
            for layer in model.layers:
                layer.positions = Rotary(HEAD_DIM, scaling=scaling)
            result["stretched"][str(length)] = test(model, length)
    result["seconds"] = time.process_time() - started
    print(kind, seed, rounded(result), flush=True)
    return rounded(result)


def run(folder: Path) -> dict[str, Any]:
    """Every kind with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    runs = [measure(kind, seed) for kind in KINDS for seed in SEEDS]
    about = {"length": LENGTH, "tested": TESTED, "noise": NOISE, "symbols": SYMBOLS, "pairs": PAIRS, "near": NEAR}
    about |= {"steps": STEPS, "rows": ROWS, "test_rows": TEST_ROWS, "rate": RATE, **SIZES}
    return {"settings": about, "chance": 1 / SYMBOLS, "runs": runs}
