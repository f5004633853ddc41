"""Attention by hashing on a task that needs far lookups: the duplication task of Kitaev et al. 2020.

A sequence is 0 w 0 w, with w of random symbols; what counts is the second w. A causal language model of one layer, in
which queries are the keys, is trained with full attention or with LSH attention of 1, 2 or 4 rounds, fresh hashes at
each step, and each model is tested with full attention and with 8, 4, 2 and 1 rounds, as in table 2 of the paper.

Scaled down, ours against theirs: length 128 against 1024; 31 symbols beside the 0 against 127; model and feed-forward
size 64 against 256; 2500 steps against 150 000; 4 heads both. Ours scores with 1/√D, their code with 1.
"""

import math
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core import Dense, LSHAttention, MultiHeadAttention
from attn_core.positions import Learned
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
LENGTH, SYMBOLS = 128, 32
BUCKET_SIZE = 8
MODEL_DIM, HEADS = 64, 4
STEPS, WARM_UP = 2500, 100
BATCH_SIZE = 16
LEARNING_RATE = 5e-3
TRAINED = (0, 4, 2, 1)  # rounds of hashing; 0 is full attention
TESTED = (0, 8, 4, 2, 1)
TEST_SEQUENCES, TEST_HASHES = 32, 4
TIMED_LENGTHS, TIMED_STEPS = (128, 512, 2048), 12


class FullAttention(Dense):
    """What LSHAttention is with one bucket and a chunk as long as the sequence, by the faster dense path."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """The contract's shapes: unit keys, and a token sees itself only if it sees nothing else, as the first does."""
        others = ~torch.eye(q.shape[2], dtype=torch.bool)
        others[0, 0] = True
        return super().forward(q, functional.normalize(k, dim=-1), v, **options | {"mask": others})


class CopyingModel(nn.Module):
    """One layer: attention and a feed-forward network, each behind a normalisation and beside a shortcut."""

    def __init__(self, length: int, rounds: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, MODEL_DIM)
        self.positions = Learned(length, MODEL_DIM)
        nn.init.normal_(self.positions.weight)  # as large as the symbols' vectors: positions alone say what to copy
        self.attention = MultiHeadAttention(MODEL_DIM, HEADS, share_query_key=True, mechanism=mechanism(rounds))
        self.feed_forward = nn.Sequential(nn.Linear(MODEL_DIM, MODEL_DIM), nn.ReLU(), nn.Linear(MODEL_DIM, MODEL_DIM))
        self.first, self.second, self.last = (nn.LayerNorm(MODEL_DIM) for _ in range(3))
        self.logits = nn.Linear(MODEL_DIM, SYMBOLS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(B, T, V)`` for ``tokens (B, T)``."""
        x = self.positions(self.embedding(tokens))
        x = x + self.attention(self.first(x), causal=True)
        return self.logits(self.last(x + self.feed_forward(self.second(x))))


def mechanism(rounds: int, seed: int = 0) -> FullAttention | LSHAttention:
    """Full attention, or by so many rounds of hashing."""
    return LSHAttention(bucket_size=BUCKET_SIZE, rounds=rounds, seed=seed) if rounds else FullAttention()


def name(rounds: int) -> str:
    """How a number of rounds is called in the results."""
    return str(rounds) if rounds else "full"


def duplicates(rows: int, length: int, draw: torch.Generator) -> Tensor:
    """Sequences 0 w 0 w: ``(rows, length)``."""
    word = functional.pad(torch.randint(1, SYMBOLS, (rows, length // 2 - 1), generator=draw), (1, 0))
    return torch.cat([word, word], 1)


def predict(model: CopyingModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Logits ``(B, n, V)`` and true symbols ``(B, n)`` of the second w, each from all tokens before it."""
    half = tokens.shape[1] // 2
    return model(tokens[:, :-1])[:, half:], tokens[:, half + 1 :]


def step(model: CopyingModel, optimizer: torch.optim.Optimizer, tokens: Tensor, hashes: int) -> float:
    """One step of training with the hashes of this number; the loss in nats a symbol."""
    if isinstance(model.attention.mechanism, LSHAttention):
        model.attention.mechanism.seed = hashes
    logits, wanted = predict(model, tokens)
    loss = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def train(model: CopyingModel, seed: int) -> list[float]:
    """The losses of all steps. The batches depend on the seed alone, and so do the hashes."""
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    losses = []
    for number in range(STEPS):
        warm, share = min(1.0, (number + 1) / WARM_UP), number / STEPS
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * warm * 0.5 * (1 + math.cos(math.pi * share))
        losses.append(step(model, optimizer, duplicates(BATCH_SIZE, LENGTH, draw), seed * STEPS + number))
    return losses


def met(model: CopyingModel, tokens: Tensor) -> Tensor:
    """Whether the symbol to be copied is among those that are seen: ``(B, H, n)`` for the n symbols of the second w.

    With scores of zero every token that is seen has a weight above zero, and one-hot positions as values show it.
    """
    mechanism, half = model.attention.mechanism, tokens.shape[1] // 2
    q, _ = model.attention.project_kv(model.first(model.positions(model.embedding(tokens[:, :-1]))))
    if not isinstance(mechanism, LSHAttention):
        return torch.ones(*q.shape[:2], half - 1, dtype=torch.bool)
    places = torch.eye(q.shape[2]).expand(*q.shape[:2], -1, -1)
    seen = mechanism(q, q, places, causal=True, scale=0.0) > 0
    return seen.diagonal(1 - half, -2, -1)[..., 1:]  # token i needs the one after its like: i + 1 - half


def summary(right: Tensor, seen: Tensor) -> dict[str, Any]:
    """Accuracies, and shares of needed pairs that met: ``right (hashes, B, n)`` and ``seen (hashes, B, H, n)``."""
    somewhere = seen.any(2)
    return {
        "accuracy": right.float().mean().item(),
        "met_by_head": seen.float().mean((0, 1, 3)).tolist(),
        "met": somewhere.float().mean().item(),
        "accuracy_met": right[somewhere].float().mean().item() if somewhere.any() else None,
        "accuracy_unmet": right[~somewhere].float().mean().item() if not somewhere.all() else None,
    }


@torch.no_grad()
def test(model: CopyingModel) -> dict[str, dict[str, Any]]:
    """Accuracies and meetings by the number of rounds; the model is left with the last mechanism."""
    tokens = duplicates(TEST_SEQUENCES, LENGTH, torch.Generator().manual_seed(1234))
    found = {}
    for rounds in TESTED:
        right, seen = [], []
        for hashes in range(TEST_HASHES if rounds else 1):
            model.attention.mechanism = mechanism(rounds, 10**6 + hashes)
            logits, wanted = predict(model, tokens)
            right.append(logits.argmax(-1) == wanted)
            seen.append(met(model, tokens))
        found[name(rounds)] = summary(torch.stack(right), torch.stack(seen))
    return found


def measure(rounds: int, seed: int) -> dict[str, Any]:
    """One model, trained and tested."""
    torch.manual_seed(seed)
    model = CopyingModel(LENGTH, rounds)
    losses = train(model, seed)
    means = [statistics.fmean(losses[place : place + 50]) for place in range(0, STEPS, 50)]
    tests = test(model)
    shown = {key: (each["accuracy"], each["met"]) for key, each in tests.items()}
    print(f"{name(rounds)}, seed {seed}: loss {means[-1]:.4f}, {shown}", flush=True)
    return rounded({"trained": name(rounds), "seed": seed, "loss": means, "test": tests})


def step_times(length: int) -> dict[str, float]:
    """Milliseconds of the fastest training step, as many tokens at every length, all models in turn."""
    draw = torch.Generator().manual_seed(0)
    models = {rounds: CopyingModel(length, rounds) for rounds in TRAINED}
    optimizers = {rounds: torch.optim.AdamW(model.parameters()) for rounds, model in models.items()}
    times: dict[int, list[float]] = {rounds: [] for rounds in TRAINED}
    for number in range(TIMED_STEPS):
        tokens = duplicates(BATCH_SIZE * LENGTH // length, length, draw)
        for rounds, model in models.items():
            started = time.perf_counter()
            step(model, optimizers[rounds], tokens, number)
            times[rounds].append(1000 * (time.perf_counter() - started))
    return {name(rounds): min(found) for rounds, found in times.items()}  # other work on the machine only adds


def run(folder: Path) -> dict[str, Any]:
    """Every model with every seed; one that is not trained; what a step of training costs, at longer lengths too."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    training = {"steps": STEPS, "batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE, "threads": 1}
    task = {"length": LENGTH, "symbols": SYMBOLS - 1, "sequences": TEST_SEQUENCES, "hashes": TEST_HASHES}
    sizes = {"bucket_size": BUCKET_SIZE, "model_dim": MODEL_DIM, "heads": HEADS}
    milliseconds = {str(length): rounded(step_times(length)) for length in TIMED_LENGTHS}
    torch.manual_seed(0)
    untrained = rounded(test(CopyingModel(LENGTH, 0)))
    return {
        "training": training | task | sizes,
        "chance": 1 / (SYMBOLS - 1),
        "step_milliseconds": milliseconds,
        "untrained": untrained,
        "runs": [measure(rounds, seed) for seed in SEEDS for rounds in TRAINED],
    }
