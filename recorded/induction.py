"""Induction heads: when they come and what they are made of, in attention-only models of one and two layers.

Random sequences in which a piece comes twice (`draw_repeats`). Both depths are trained alike, and at some forty points
the loss of the same tokens is taken where they come first and where they come again, with what each head does then.
At the end each head is switched off in turn; and what a head of the first layer has written is hidden from the
queries, the keys or the values of the second alone, to see through which of them the two layers work together.
"""

import importlib
import math
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from attn_book.induction import (
    AttentionOnly,
    Repeats,
    best_losses,
    draw_repeats,
    head_off,
    induction_scores,
    next_token_losses,
    occurrence_losses,
    previous_token_scores,
)
from attn_core import MultiHeadAttention, capture_attention, masks
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
VOCAB, LENGTH, PIECE = 64, 48, (12, 20)
SIZES = {"model_dim": 64, "num_heads": 2}
DEPTHS = (1, 2)
BATCH_SIZE, LEARNING_RATE, WARMUP, STEPS, EVERY = 32, 5e-3, 50, 1600, 40
TEST_ROWS, POSITION_ROWS = 256, 20_000
PROCESSES = 2


def draw(rows: int, seed: int) -> Iterator[Repeats]:
    """Batches without end, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield draw_repeats(rows, LENGTH, VOCAB, piece=PIECE, generator=generator)


def test_rows() -> Repeats:
    """The sequences that all models are measured on."""
    return next(draw(TEST_ROWS, 1234))


def train(model: AttentionOnly, seed: int) -> tuple[list[dict[str, Any]], float]:
    """Train; what was measured before the first step and every `EVERY` steps, and the seconds that the steps took."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    curve, seconds = [{"step": 0, **behaviour(model)}], 0.0
    for step, (tokens, _, _) in zip(range(1, STEPS + 1), draw(BATCH_SIZE, seed), strict=False):
        started = time.process_time()
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(1.0, step / WARMUP)
        loss = next_token_losses(model(tokens), tokens).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds += time.process_time() - started
        if step % EVERY == 0:
            curve.append({"step": step, **behaviour(model)})
    return curve, seconds


@torch.no_grad()
def behaviour(model: AttentionOnly) -> dict[str, Any]:
    """The loss at first and second occurrences (nats), and two scores of every head, layer by layer."""
    repeats = test_rows()
    with capture_attention(model) as maps:
        logits = model(repeats.tokens)
    layers = [maps[f"layers.{number}"][0] for number in range(len(model.layers))]
    return losses(logits, repeats) | {
        "previous_token": [previous_token_scores(weights).tolist() for weights in layers],
        "induction": [induction_scores(weights, repeats.tokens).tolist() for weights in layers],
    }


def losses(logits: Tensor, repeats: Repeats) -> dict[str, float]:
    """The mean loss of the repeated tokens where they come first and where they come again, in nats."""
    first, second = occurrence_losses(next_token_losses(logits, repeats.tokens), repeats)
    return {"first": first, "second": second}


def heads_off(model: AttentionOnly) -> list[dict[str, Any]]:
    """What the model does with each of its heads switched off, one at a time."""
    found, layers = [], cast(list[MultiHeadAttention], model.layers)
    for number, layer in enumerate(layers):
        for head in range(SIZES["num_heads"]):
            with head_off(layer, head):
                found.append({"layer": number, "head": head, **behaviour(model)})
    return found


@torch.no_grad()
def hidden(model: AttentionOnly, head: int, role: str) -> dict[str, Any]:
    """What a model of two layers does where only one input of the second misses what a head of the first wrote.

    ``role`` is "queries", "keys" or "values". The stream itself goes on as it was.
    """
    repeats = test_rows()
    (below, layer), (norm, second_norm) = cast(list[MultiHeadAttention], model.layers), model.norms
    start = model.embedding(repeats.tokens)
    x = start + below(norm(start), causal=True)
    with head_off(below, head):
        without = start + below(norm(start), causal=True)
    inputs = dict.fromkeys(("queries", "keys", "values"), second_norm(x)) | {role: second_norm(without)}
    with capture_attention(layer) as maps:
        x = x + layer(inputs["queries"], inputs["keys"], inputs["values"], causal=True)
    logits = model.unembedding(model.last_norm(x))
    scores = induction_scores(maps[""][0], repeats.tokens).tolist()
    return {"head": head, "hidden_from": role, **losses(logits, repeats), "induction": scores}


def bend(curve: list[dict[str, Any]]) -> int | None:
    """The first step measured at which a repeated token costs less than half as much as a fresh one; None if never."""
    return next((point["step"] for point in curve if point["second"] < math.log(VOCAB) / 2), None)


@torch.no_grad()
def example(model: AttentionOnly, last: dict[str, Any]) -> dict[str, Any]:
    """One sequence, and the maps of the two heads concerned: the best by their scores in each layer."""
    repeats = Repeats(*(part[:1] for part in test_rows()))
    with capture_attention(model) as maps:
        model(repeats.tokens)
    found: dict[str, Any] = {name: getattr(repeats, name)[0].int().tolist() for name in Repeats._fields}
    for layer, name in enumerate(("previous_token", "induction")):
        scores = last[name][layer]
        head = scores.index(max(scores))
        found[name] = {"layer": layer, "head": head, "weights": maps[f"layers.{layer}"][0][0, head].tolist()}
    return found


def measure(depth: int, seed: int) -> dict[str, Any]:
    """One model, trained, measured, and interfered with."""
    torch.manual_seed(seed)
    model = AttentionOnly(VOCAB, **SIZES, num_layers=depth)
    curve, seconds = train(model, seed)
    last, came = curve[-1], bend(curve)
    result: dict[str, Any] = {"layers": depth, "seed": seed, "parameters": sum(p.numel() for p in model.parameters())}
    result |= {"cpu_seconds": seconds, "bend": came, "curve": curve, "one_off": heads_off(model)}
    if depth == 2:
        each = [(head, role) for head in range(SIZES["num_heads"]) for role in ("queries", "keys", "values")]
        result["one_hidden"] = [hidden(model, head, role) for head, role in each]
        result["example"] = example(model, last) if seed == SEEDS[0] else None
    print(f"{depth} layers, seed {seed}: {last}; bend at {came}; {seconds:.0f} s", flush=True)
    return rounded(result)


def by_position() -> float:
    """How often a reader finds the token to repeat who knows the place of a token, and not what it says."""
    _, first, second = next(draw(POSITION_ROWS, 4321))
    distances = (second.int().argmax(1) - first.int().argmax(1))[:, None].expand_as(second)
    places = torch.arange(LENGTH).expand_as(second)
    counts = torch.zeros(LENGTH, LENGTH)
    counts.index_put_((places[second], distances[second]), torch.ones(()), accumulate=True)
    return (counts.amax(1).sum() / counts.sum()).item()


def references() -> dict[str, Any]:
    """What the figures are to be held against: the best reader, and heads that look everywhere alike."""
    repeats = test_rows()
    parts = [best_losses(rows, VOCAB, piece=PIECE) for rows in repeats.tokens.split(32)]
    first, second = occurrence_losses(torch.cat(parts), repeats)
    causal = masks.causal(LENGTH, LENGTH).float()
    uniform = (causal / causal.sum(-1, keepdim=True)).expand(TEST_ROWS, 1, -1, -1)
    return {
        "fresh": math.log(VOCAB),
        "best_reader": {"first": first, "second": second},
        "uniform": {
            "previous_token": previous_token_scores(uniform).item(),
            "induction": induction_scores(uniform, repeats.tokens).item(),
        },
        "by_position": by_position(),
    }


def run(folder: Path) -> dict[str, Any]:
    """Both depths with every seed, and what to hold them against."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    training: dict[str, Any] = {"vocab_size": VOCAB, "length": LENGTH, "piece": PIECE, **SIZES, "threads": 1}
    training |= {"batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE, "warmup_steps": WARMUP, "steps": STEPS}
    training |= {"every": EVERY, "test_rows": TEST_ROWS}
    jobs = [(depth, seed) for seed in SEEDS for depth in sorted(DEPTHS, reverse=True)]
    importable = importlib.import_module("recorded.induction").measure  # run.py loads this file under another name
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        runs = list(pool.map(importable, *zip(*jobs, strict=True)))
    return {"training": training, "references": rounded(references()), "runs": runs}
