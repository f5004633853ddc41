"""What it costs to cache less: small language models whose attention keeps fewer numbers of each token.

Multi-head attention caches the keys and values of all heads, grouped-query and multi-query attention those of fewer,
and latent attention one vector from which they are computed. All else is the model ``rotary`` of ``block.py``, and the
training is the same.
"""

import importlib
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attn_core import LatentAttention
from recorded import block
from recorded.bahdanau import rounded

SEEDS = block.SEEDS
RATES = block.RATES
HEAD_DIM = block.WIDTH // block.HEADS


def latent(latent_dim: int, rotary_dim: int) -> Any:
    """A function that makes the self-attention of a layer, with the arguments that a layer gives."""
    return partial(self_attention, latent_dim, rotary_dim)


def self_attention(latent_dim: int, rotary_dim: int, model_dim: int, num_heads: int, **given: Any) -> nn.Module:
    """Latent attention; its positions are its own."""
    return LatentAttention(
        model_dim,
        num_heads,
        latent_dim=latent_dim,
        rotary_dim=rotary_dim,
        bias=given["bias"],
        mechanism=given["mechanism"],
    )


KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "multi-head": (2 * block.HEADS * HEAD_DIM, {}),
    "grouped, 2 heads": (2 * 2 * HEAD_DIM, {"num_kv_heads": 2}),
    "multi-query": (2 * HEAD_DIM, {"num_kv_heads": 1}),
    "latent, 48 + 16": (64, {"attention": latent(48, 16)}),
    "latent, 24 + 8": (32, {"attention": latent(24, 8)}),
    "latent, 12 + 4": (16, {"attention": latent(12, 4)}),
}
"""How many numbers a layer caches of each token, and what is changed."""


def one_of(kind: str, rate: float, seed: int) -> dict[str, Any]:
    """One run."""
    torch.set_num_threads(1)
    cached, change = KINDS[kind]
    found = block.train(block.variants()["rotary"] | change, rate, seed, *block.stories())
    print(f"{kind:16} {rate:7.3f} {seed} {found['loss']:.3f}", flush=True)
    kept = {key: found[key] for key in ("loss", "curve", "parameters")}
    return {"kind": kind, "cached": cached, "rate": rate, "seed": seed} | rounded(kept)


def run(folder: Path) -> dict[str, Any]:
    """Every kind at its learning rates, with each seed."""
    runs = [(kind, rate, seed) for kind in KINDS for rate in RATES for seed in SEEDS]
    with ProcessPoolExecutor(block.PROCESSES, get_context("spawn")) as pool:
        found = list(pool.map(importlib.import_module("recorded.caches").one_of, *zip(*runs, strict=True)))
    return {"training": {"steps": block.STEPS, "rates": RATES, "sizes": block.SIZES}, "runs": found}
