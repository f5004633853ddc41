"""How many of the keys with the largest weights does an indexer find, in five layers of SmolLM2 and with five seeds?

An indexer of four heads of 16 entries imitates one layer on ten texts of 512 tokens, and is judged on three others.
"""

from pathlib import Path
from pydoc_data.topics import topics
from statistics import mean
from typing import Any

import torch

from attn_book.indexer import LightningIndexer, imitation_loss, recall
from attn_book.microscope import attentions, layer_input
from attn_book.published import smollm2_file
from attn_core.capture import capture_attention
from attn_core.pretrained import load_gguf

SEEDS = (0, 1, 2, 3, 4)
LENGTH, STEPS, RATE = 512, 150, 5e-3
LAYERS, COUNTS = (1, 8, 15, 22, 28), (16, 32, 64)
TRAINED = "assignment class typesmapping typesseq operator-summary string-methods function import with objects".split()
JUDGED = ("execmodel", "debugger", "compound")


@torch.no_grad()
def read(model: Any, ids: list[list[int]], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What a layer reads of each text, ``(B, n, C)``, and the mean weights of its heads ``(B, n, n)``."""
    tokens, part = torch.tensor(ids), attentions(model)[layer]
    x = layer_input(model, tokens, layer)
    with capture_attention(part) as maps:
        part(x, causal=True)
    return x, maps[""][0].mean(1)


def judge(scores: torch.Tensor, weights: torch.Tensor) -> dict[str, list[float]]:
    """For each count: the share of true keys found, the weight held, and the weight that the true keys hold."""
    late = slice(LENGTH // 2, None)
    rows = {}
    for count in COUNTS:
        found, held = (part[:, late].mean().item() for part in recall(scores, weights, count))
        best = recall(weights, weights, count)[1][:, late].mean().item()
        rows[str(count)] = [round(share, 4) for share in (found, held, best)]
    return rows


def run(folder: Path) -> dict[str, Any]:
    """Each layer and seed, before and after training."""
    torch.set_num_threads(1)
    model, tokenizer = load_gguf(smollm2_file())
    texts = [[tokenizer.encode(topics[name]).ids[:LENGTH] for name in names] for names in (TRAINED, JUDGED)]
    runs: list[dict[str, Any]] = []
    for layer in LAYERS:
        (x, target), (new, weights) = (read(model, ids, layer) for ids in texts)
        for seed in SEEDS:
            torch.manual_seed(seed)
            indexer = LightningIndexer(x.shape[-1])
            optimiser = torch.optim.Adam(indexer.parameters(), lr=RATE)
            with torch.no_grad():
                before = judge(indexer(new), weights)
            for step in range(STEPS):
                one = slice(step % len(x), step % len(x) + 1)
                loss = imitation_loss(indexer(x[one]), target[one])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            with torch.no_grad():
                after = judge(indexer(new), weights)
            runs.append({"layer": layer, "seed": seed, "untrained": before, "trained": after})
            print(layer, seed, after, flush=True)
    means = {
        str(count): {
            what: round(mean(run["trained"][str(count)][k] for run in runs), 4)
            for k, what in enumerate(("found", "held", "best"))
        }
        for count in COUNTS
    }
    return {"length": LENGTH, "steps": STEPS, "runs": runs, "means": means}
