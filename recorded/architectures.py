"""A recurrent translator and a Transformer, compared fairly: on the grammar's pairs and on real sentences.

Chapter 2's model with a bidirectional encoder, and a Transformer with about as many parameters. With the first seed, each
is trained at three learning rates; the one with the lowest held-out loss is used with all seeds. Both see the same
batches. Real sentences need the archive (`ATTN_CORE_DATA`, or a download).
"""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attn_book.corpus import corpus
from attn_book.tatoeba import tatoeba_corpus
from attn_core.data import Batches, Pair, Vocab
from attn_core.decode import translate
from attn_core.metrics import bleu, exact_match
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.train import fit, token_loss
from attn_core.transformer import Transformer, TransformerConfig
from recorded.ablations import held_out
from recorded.bahdanau import LENGTHS, rounded

SEEDS = (0, 1, 2)
MODELS = ("recurrent", "transformer")
RATES = {"recurrent": (2.5e-3, 5e-3, 1e-2), "transformer": (2e-3, 4e-3, 8e-3)}
CURVE = 12
"""Points on each curve."""
COSTS = (8, 16, 32, 64)
"""Lengths of both sides, in tokens, at which a training step is measured."""
REPEATS = 5


@dataclass(frozen=True)
class Task:
    """A corpus, how long models learn from it, and how large they are."""

    train: list[Pair]
    valid: list[Pair]
    parts: dict[str, list[Pair]]
    vocabs: tuple[Vocab, Vocab]
    batch_size: int
    epochs: int
    recurrent: dict[str, Any]
    transformer: dict[str, Any]


def tasks() -> dict[str, Task]:
    """The grammar's pairs and real ones."""
    made, real = corpus(test=3_000), tatoeba_corpus(max_words=12)
    return {
        "grammar": Task(
            list(made.train),
            list(made.valid)[:200],
            {"test": list(made.test), "structures": list(made.structures)},
            (Vocab(p.source for p in made.train), Vocab(p.target for p in made.train)),
            batch_size=32,
            epochs=4,
            recurrent={"embed_dim": 64, "hidden_dim": 128},
            transformer={"model_dim": 96, "num_heads": 4, "num_layers": 2, "feed_forward_dim": 192},
        ),
        "tatoeba": Task(
            list(real.train),
            list(real.valid)[:200],
            {"test": list(real.test)},
            (Vocab((p.source for p in real.train), min_count=2), Vocab((p.target for p in real.train), min_count=2)),
            batch_size=64,
            epochs=4,
            recurrent={"embed_dim": 128, "hidden_dim": 256},
            transformer={"model_dim": 192, "num_heads": 4, "num_layers": 2, "feed_forward_dim": 768},
        ),
    }


def build(kind: str, task: Task, *, dropout: float = 0.1) -> nn.Module:
    """One of the two models."""
    source, target = (len(vocab) for vocab in task.vocabs)
    if kind == "transformer":
        config = TransformerConfig(target, source, **task.transformer, dropout=dropout, norm_first=True)
        return Transformer(config)
    embed, hidden = task.recurrent["embed_dim"], task.recurrent["hidden_dim"]
    encoder = Encoder(source, embed_dim=embed, hidden_dim=hidden // 2, dropout=dropout)
    decoder = BahdanauDecoder(target, embed_dim=embed, hidden_dim=hidden, memory_dim=hidden, dropout=dropout)
    return Seq2Seq(encoder, decoder)


def train(kind: str, task: Task, seed: int, rate: float) -> tuple[Any, list[int], list[float]]:
    """A trained model, and the steps and held-out losses of its run."""
    torch.manual_seed(seed)
    model = build(kind, task)
    batches = Batches(task.train, *task.vocabs, batch_size=task.batch_size, seed=seed)
    every = task.epochs * len(batches) // CURVE
    validate = partial(held_out, batches=Batches(task.valid, *task.vocabs, batch_size=100))
    settings: dict[str, Any] = {"epochs": task.epochs, "learning_rate": rate, "seed": seed, "device": "cpu"}
    history = fit(model, batches, validate=validate, validate_every=every, progress=False, **settings)
    return model, [int(v["step"]) for v in history.validation], [v["loss"] for v in history.validation]


def scores(model: Any, pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> list[dict[str, Any]]:
    """Of all pairs, and of those with sources of like length: how many, BLEU and exact match in percent."""
    words = [t.words for t in translate(model, [p.source for p in pairs], *vocabs)]
    rows = []
    for low, high in ((1, 50), *LENGTHS):
        chosen = [number for number, pair in enumerate(pairs) if low <= len(pair.source) <= high]
        if chosen:
            found, wanted = [words[number] for number in chosen], [pairs[number].target for number in chosen]
            quality = {"bleu": bleu(found, wanted), "exact": 100 * exact_match(found, wanted)}
            rows.append({"from": low, "to": high, "sentences": len(chosen), **quality})
    return rows


def cost(task: Task) -> list[dict[str, Any]]:
    """Processor time and operations of a training step, per target token, both models taking turns."""
    rows = []
    for length in COSTS:
        tokens = torch.randint(4, 400, (task.batch_size, length))
        lengths = torch.full((task.batch_size,), length)
        models = {kind: build(kind, task, dropout=0.0) for kind in MODELS}

        def step(model: Any, tokens: torch.Tensor = tokens, lengths: torch.Tensor = lengths) -> None:
            token_loss(model(tokens, lengths, tokens), tokens)[0].backward()

        seconds: dict[str, list[float]] = {kind: [] for kind in MODELS}
        for _ in range(REPEATS + 1):
            for kind, model in models.items():
                started = time.process_time()
                step(model)
                seconds[kind].append(time.process_time() - started)
        for kind, model in models.items():
            with (
                FlopCounterMode(display=False) as counter,
                sdpa_kernel(SDPBackend.MATH),
            ):  # the fused one is not counted
                step(model)
            each = sorted(seconds[kind][1:])
            spread = {name: 1e6 * each[at] / tokens.numel() for name, at in (("least", 0), ("median", 2), ("most", -1))}
            flops = counter.get_total_flops() / tokens.numel()
            rows.append({"model": kind, "length": length, "flops_per_token": flops, "microseconds_per_token": spread})
    return rows


def run(folder: Path) -> dict[str, Any]:
    """Learning rates for both models on both corpora, then both with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    tuning: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    all_tasks = tasks()
    costs = cost(all_tasks["grammar"])
    for corpus_name, task in all_tasks.items():
        for kind in MODELS:
            tried = {rate: train(kind, task, SEEDS[0], rate) for rate in RATES[kind]}
            for rate, (_, _, losses) in tried.items():
                tuning.append({"corpus": corpus_name, "model": kind, "learning_rate": rate, "loss": losses[-1]})
                print(tuning[-1], flush=True)
            best = min(tried, key=lambda rate: tried[rate][2][-1])
            for seed in SEEDS:
                model, steps, losses = tried[best] if seed == SEEDS[0] else train(kind, task, seed, best)
                found: dict[str, Any] = {"corpus": corpus_name, "model": kind, "seed": seed, "learning_rate": best}
                found |= {"parameters": sum(p.numel() for p in model.parameters()), "steps": steps, "loss": losses}
                for part, pairs in task.parts.items():
                    whole, *lengths = scores(model, pairs, task.vocabs)
                    found[part] = whole
                    if part == "test":
                        found["by_length"] = lengths
                runs.append(found)
                print(found, flush=True)
    training = {
        "batch_size": {name: task.batch_size for name, task in all_tasks.items()},
        "epochs": {name: task.epochs for name, task in all_tasks.items()},
        "pairs": {name: len(task.train) for name, task in all_tasks.items()},
        "sizes": {name: {kind: getattr(task, kind) for kind in MODELS} for name, task in all_tasks.items()},
        "dropout": 0.1,
        "threads": 1,
    }
    return rounded({"training": training, "tuning": tuning, "runs": runs, "cost": costs})
