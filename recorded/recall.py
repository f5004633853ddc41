"""Associative recall at growing lengths: what each mechanism of part III still finds, and what it costs.

A sequence holds pairs and `QUESTIONS` questions in random order. A pair is one token that carries a key and a value,
and no two pairs have the same key; a question carries the key of one of the pairs, and its answer is that pair's value.
Nothing says where a pair stands, so one layer of attention over content is all that is needed, and all that is tested.

All layers project queries and keys alike, as LSHAttention must; with two projections exact attention, too, learns late.
"""

import functools
import importlib
import math
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core import FlashAttention, Linformer, LongformerAttention, LSHAttention, MultiHeadAttention, Performer
from attn_core.mechanisms.dense import attention, attention_with_weights
from attn_core.mechanisms.window import SlidingWindow, sliding_window_attention
from benchmarks.measure import Work, alternate, check_same, fresh, memory_is_read_from, peak_memory, ratio
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
ROWS = {64: 32, 256: 8, 1024: 4}  # the lengths, and how many sequences a step of training has of each
QUESTIONS, KEYS, VALUES = 32, 2048, 32
STEPS, LEARNING_RATE = 600, 2e-2
MODEL_DIM, HEADS = 64, 2
CALL_HEADS, CALL_HEAD_DIM = 4, 64
WINDOW, TEST_QUESTIONS, ROUNDS = 32, 4096, 11
PROCESSES = 2
CPU = torch.device("cpu")

Mechanism = Callable[..., Tensor]


def explicit(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Exact attention with its weights in memory."""
    return attention_with_weights(q, k, v, **options)[0]


def longformer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What `LongformerAttention` does between its projections, the questions evenly spread: for the costs alone."""
    places = torch.arange(QUESTIONS) * (q.shape[2] // QUESTIONS)
    near = torch.ones(q.shape[2], dtype=torch.bool).index_fill(0, places, False)
    shared = k[:, :, places], v[:, :, places]
    out = sliding_window_attention(q, k, v, WINDOW, WINDOW, mask=near, global_k=shared[0], global_v=shared[1])
    return out.index_copy(2, places, attention(q[:, :, places], k, v))


class LSH(LSHAttention):
    """With other hashes each time, lest one draw be learned, and at the authors' scale.

    Keys have length 1 here, so 1/√D leaves all weights nearly equal at the start, and 1024 tokens take longer to learn.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """Attend at scale 1."""
        self.seed += 1
        return super().forward(q, k, v, **options | {"scale": 1.0})


EXACT: dict[str, Callable[[int, int], Mechanism]] = {
    "exact": lambda length, size: attention,
    "explicit": lambda length, size: explicit,
    "flash": lambda length, size: FlashAttention(),
}
"""Three ways to the same output, by length and head size; the first one's accuracy is that of all."""

APPROXIMATE: dict[str, Callable[[int, int], Mechanism]] = {
    "window": lambda length, size: SlidingWindow(WINDOW),
    "Longformer": lambda length, size: longformer,
    "Linformer 64": lambda length, size: Linformer(length, 64),
    "Linformer 128": lambda length, size: Linformer(length, 128),
    "Performer 64": lambda length, size: Performer(size, 64),
    "Performer 256": lambda length, size: Performer(size, 256),
    "LSH 1": lambda length, size: LSH(bucket_size=32, rounds=1),
    "LSH 4": lambda length, size: LSH(bucket_size=32, rounds=4),
}
"""The number after a name: slots, features or rounds."""


class Recall(nn.Module):
    """One layer of attention and a feed-forward network, each behind a normalisation and beside a shortcut."""

    def __init__(self, name: str, length: int) -> None:
        super().__init__()
        self.keys, self.values = nn.Embedding(KEYS, MODEL_DIM), nn.Embedding(VALUES + 1, MODEL_DIM)
        nn.init.normal_(self.values.weight, std=0.5)  # at 1, the keys stand out less, and long sequences take longer
        self.attention: MultiHeadAttention | LongformerAttention
        if name == "Longformer":
            self.attention = LongformerAttention(MODEL_DIM, HEADS, WINDOW)
            self.attention.key, self.attention.key_global = self.attention.query, self.attention.query_global
        else:
            mechanism = (EXACT | APPROXIMATE)[name](length, MODEL_DIM // HEADS)
            self.attention = MultiHeadAttention(MODEL_DIM, HEADS, share_query_key=True, mechanism=mechanism)
        wide = nn.Linear(MODEL_DIM, 4 * MODEL_DIM), nn.ReLU()
        self.feed_forward = nn.Sequential(*wide, nn.Linear(4 * MODEL_DIM, MODEL_DIM))
        self.first, self.second, self.last = (nn.LayerNorm(MODEL_DIM) for _ in range(3))
        self.logits = nn.Linear(MODEL_DIM, VALUES)

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        """Logits ``(answers, VALUES)`` of the questions, row by row; ``keys`` and ``values (B, T)``, as `draw` says."""
        asks = values == VALUES
        x = self.keys(keys) + self.values(values)
        each = self.first(x)
        special = (asks,) if isinstance(self.attention, LongformerAttention) else ()
        x = (x + self.attention(each, *special))[asks]  # nothing is asked of the others from here on
        return self.logits(self.last(x + self.feed_forward(self.second(x))))


def draw(many: int, length: int, by: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values ``(many, length)``, a question's value being `VALUES`; and the answers, row by row."""
    pairs = length - QUESTIONS
    keys = torch.rand(many, KEYS, generator=by).topk(pairs).indices
    values = torch.randint(VALUES, (many, pairs), generator=by)
    asked = torch.rand(many, pairs, generator=by).topk(QUESTIONS).indices
    # At first the pairs and then the questions, a question with its answer; all shuffled, the answers are cut out.
    order = torch.rand(many, length, generator=by).argsort(1)
    keys, answers = (torch.cat((x, x.gather(1, asked)), 1).gather(1, order) for x in (keys, values))
    asks = order >= pairs
    return keys, answers.masked_fill(asks, VALUES), answers[asks]


def train(model: Recall, length: int, seed: int) -> float:
    """Train; the mean loss of the last 20 steps. The batches depend on length and seed alone."""
    by, losses = torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    for number in range(STEPS):
        warm, share = min(1.0, (number + 1) / 50), number / STEPS
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * warm * 0.5 * (1 + math.cos(math.pi * share))
        losses.append(step(model, optimizer, draw(ROWS[length], length, by)))
    return statistics.mean(losses[-20:])


def step(model: Recall, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor, Tensor]) -> float:
    """One step of training; the loss."""
    keys, values, answers = batch
    loss = functional.cross_entropy(model(keys, values), answers)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


@torch.no_grad()
def test(model: Recall, length: int) -> float:
    """The share of questions answered rightly, in sequences that are the same for all."""
    by, right = torch.Generator().manual_seed(1234), []
    for _ in range(TEST_QUESTIONS // (QUESTIONS * ROWS[length])):
        *asked, answers = draw(ROWS[length], length, by)
        right.append(model(*asked).argmax(-1) == answers)
    return torch.cat(right).float().mean().item()


def measure(name: str, length: int, seed: int) -> dict[str, Any]:
    """One model, trained and tested."""
    torch.manual_seed(seed)
    model, started = Recall(name, length), time.perf_counter()
    loss, seconds, accuracy = train(model, length, seed), time.perf_counter() - started, test(model, length)
    if name == "exact":
        check_the_exact(model, length)
    print(f"{name}, {length} tokens, seed {seed}: {accuracy:.3f}; {seconds:.0f} s", flush=True)
    about = {"mechanism": name, "length": length, "seed": seed}
    return about | rounded({"accuracy": accuracy, "loss": loss, "seconds": seconds})


@torch.no_grad()
def check_the_exact(model: Recall, length: int) -> None:
    """Refuse to speak for the other exact mechanisms unless the trained model says the same with each of them."""
    keys, values, _ = draw(2, length, torch.Generator().manual_seed(5))
    said = {}
    for name, make in EXACT.items():
        model.attention.mechanism = make(length, MODEL_DIM // HEADS)
        said[name] = model(keys, values)
    check_same(said, 1e-4)


def guess(length: int) -> float:
    """How often a reader is right who sees the values but no key, and says the commonest one."""
    pairs = length - QUESTIONS
    values = torch.randint(VALUES, (2000, pairs), generator=torch.Generator().manual_seed(0))
    return functional.one_hot(values, VALUES).sum(1).amax(1).float().mean().item() / pairs


def training_step(name: str, length: int) -> Work:
    """One step of training as above."""
    torch.manual_seed(0)
    model, batch = Recall(name, length), draw(ROWS[length], length, torch.Generator().manual_seed(0))
    return functools.partial(step, model, torch.optim.AdamW(model.parameters()), batch)


def call(name: str, length: int) -> Work:
    """The mechanism alone, forward and backward, with one row of queries that are also the keys."""
    torch.manual_seed(0)
    q, v, toward = (torch.randn(1, CALL_HEADS, length, CALL_HEAD_DIM) for _ in range(3))
    attend, inputs = (EXACT | APPROXIMATE)[name](length, CALL_HEAD_DIM), (q.requires_grad_(), v.requires_grad_())

    def work() -> tuple[Tensor, ...]:
        out = attend(q, q, v)
        return out.detach(), *torch.autograd.grad(out, inputs, toward)

    return work


WORKS: dict[str, Callable[[str, int], Work]] = {"call": call, "step": training_step}


def memory_of(name: str, length: int) -> dict[str, float]:
    """MiB at the highest, for a process where nothing larger has run; short runs before it load the kernels."""
    torch.set_num_threads(1)
    for make in WORKS.values():
        make(name, min(ROWS))()
    return {kind: peak_memory(make(name, length), CPU)["memory"] for kind, make in WORKS.items()}


def costs(length: int) -> list[dict[str, Any]]:
    """Memory and time of every mechanism, and by how much its time is exact attention's in the same rounds."""
    importable = importlib.import_module("recorded.recall").memory_of  # run.py loads this file under another name
    memory = {name: fresh(importable, name, length) for name in EXACT | APPROXIMATE}
    found = []
    for kind, make in WORKS.items():
        works = {name: make(name, length) for name in memory}
        seconds, _ = alternate(works, rounds=ROUNDS, device=CPU)
        for name, each in seconds.items():
            about = {"kind": kind, "mechanism": name, "length": length, "memory_mib": memory[name][kind]}
            about |= {"seconds": float(f"{statistics.median(each):.3g}"), "ratio": ratio(seconds["exact"], each)}
            print(about, flush=True)
            found.append(about)
    return found


def run(folder: Path) -> dict[str, Any]:
    """What every mechanism costs at every length, and what it learns with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    training: dict[str, Any] = {"questions": QUESTIONS, "keys": KEYS, "values": VALUES}
    training |= {"learning_rate": LEARNING_RATE, "model_dim": MODEL_DIM, "heads": HEADS, "call_heads": CALL_HEADS}
    training |= {"call_head_dim": CALL_HEAD_DIM, "window": WINDOW, "test_questions": TEST_QUESTIONS, "threads": 1}
    training |= {"batch_rows": ROWS, "steps": STEPS, "memory_from": memory_is_read_from()}
    paid = [about for length in ROWS for about in costs(length)]
    jobs = [(name, length, seed) for seed in SEEDS for length in ROWS for name in ("exact", *APPROXIMATE)]
    importable = importlib.import_module("recorded.recall").measure  # run.py loads this file under another name
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        runs = list(pool.map(importable, *zip(*jobs, strict=True)))
    guesses = {str(length): round(guess(length), 4) for length in ROWS}
    return {"training": training, "chance": 1 / VALUES, "commonest_value": guesses, "costs": paid, "runs": runs}
