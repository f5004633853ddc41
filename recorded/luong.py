"""Luong's attention in all its forms, and hard attention, beside Bahdanau's.

All are trained as `bahdanau` was: on the same pairs, for as many steps, at the same learning rate.
"""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attn_book.alignment import alignment_error
from attn_book.corpus import EXAMPLE, corpus
from attn_book.data import Batch, Batches, Pair, Vocab
from attn_book.metrics import bleu, exact_match
from attn_book.teacher_forcing import teacher_forced_attention
from attn_book.train import fit, reinforce_loss, target_loss
from attn_book.translation import translate
from attn_core.scores import Additive, Dot, General
from attn_core.seq2seq import (
    BahdanauDecoder,
    Encoder,
    HardDecoder,
    LocalMonotonic,
    LocalPredictive,
    LuongDecoder,
    Seq2Seq,
)
from recorded.bahdanau import BATCH_SIZE, DROPOUT, EPOCHS, LEARNING_RATE, rounded

SEEDS = (0, 1, 2)
WINDOWS = {"local-m": 3, "local-p": 8, "local-p, narrow": 3}
"""Source words to each side. Narrow windows suit local-m, and starve local-p: it has to find its centre first."""
KINDS = (
    "dot",
    "general",
    "concat",
    "concat, fed",
    "concat, one-way",
    "local-m",
    "local-p",
    "local-p, narrow",
    "hard",
    "hard, whole sentence",
    "Bahdanau",
)
TIMED_STEPS = 30


def build(kind: str, source_size: int, target_size: int) -> Seq2Seq:
    """A model with 128 recurrent units a side, as in `bahdanau`."""
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {KINDS}, got {kind!r}")
    one_way = "one-way" in kind
    encoder = Encoder(
        source_size, embed_dim=64, hidden_dim=128 if one_way else 64, bidirectional=not one_way, dropout=DROPOUT
    )
    sizes: dict[str, Any] = {"embed_dim": 64, "hidden_dim": 128, "memory_dim": 128, "dropout": DROPOUT}
    if kind == "Bahdanau":
        return Seq2Seq(encoder, BahdanauDecoder(target_size, **sizes))
    if kind.startswith("hard"):
        return Seq2Seq(encoder, HardDecoder(target_size, **sizes))
    score = Dot() if kind == "dot" else General(128, 128) if kind == "general" else Additive(128, 128, 128)
    window: LocalMonotonic | LocalPredictive | None = None
    if kind == "local-m":
        window = LocalMonotonic(WINDOWS[kind])
    elif kind.startswith("local-p"):
        window = LocalPredictive(128, WINDOWS[kind])
    fed = kind == "concat, fed"
    return Seq2Seq(encoder, LuongDecoder(target_size, **sizes, score=score, window=window, input_feeding=fed))


def loss_of(kind: str, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The words' cross-entropy; for hard attention with what teaches it where to look."""
    if kind.startswith("hard"):
        return reinforce_loss(model, batch, discount=1.0 if "whole" in kind else 0.0)
    return target_loss(model, batch)


def scores(model: nn.Module, pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> dict[str, float]:
    """BLEU and exact match in percent, alignment error as a share, and how many were cut off at the maximum length."""
    found = translate(model, [p.source for p in pairs], *vocabs)
    wanted = [p.target for p in pairs]
    return {
        "bleu": bleu([t.words for t in found], wanted),
        "exact": 100 * exact_match([t.words for t in found], wanted),
        "alignment_error": alignment_error(teacher_forced_attention(model, pairs, *vocabs), [p.links for p in pairs]),
        "cut_off": sum(not t.finished for t in found) / len(found),
    }


def measure(
    kind: str,
    seed: int,
    parts: dict[str, list[Pair]],
    vocabs: tuple[Vocab, Vocab],
    build: Callable[[str, int, int], Seq2Seq] = build,
) -> dict[str, Any]:
    """One model, trained and measured on held-out sentences."""
    torch.manual_seed(seed)
    model = build(kind, len(vocabs[0]), len(vocabs[1]))
    batches = Batches(parts["train"], *vocabs, batch_size=BATCH_SIZE, seed=seed)
    history = fit(
        model,
        batches,
        epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        seed=seed,
        loss=lambda model, batch: loss_of(kind, model, batch),
        validate=lambda model: scores(model, parts["valid"], vocabs),
        validate_every=len(batches) // 2,
        progress=False,
    )
    (example,) = teacher_forced_attention(model, [EXAMPLE], *vocabs)
    result = {
        "model": kind,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "train_seconds": history.seconds,
        "curve": history.validation,
        "test": scores(model, parts["test"], vocabs),
        "structures": scores(model, parts["structures"], vocabs),
        "example": example.tolist() if seed == SEEDS[0] else None,
    }
    print(f"{kind}, seed {seed}: {result['test']}; {history.seconds:.0f} s", flush=True)
    return rounded(result)


def step_times(pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> dict[str, float]:
    """The time of a training step against Bahdanau's: medians of ratios, each model taking its turn at each batch."""
    models = {kind: build(kind, len(vocabs[0]), len(vocabs[1])) for kind in KINDS}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for batch in islice(Batches(pairs, *vocabs, batch_size=BATCH_SIZE, seed=0), TIMED_STEPS):
        for kind, model in models.items():
            started = time.perf_counter()
            loss_of(kind, model, batch)[0].backward()
            times[kind].append(time.perf_counter() - started)
    ratios = {kind: torch.tensor(times[kind]) / torch.tensor(times["Bahdanau"]) for kind in KINDS}
    return {kind: round(ratio[3:].median().item(), 2) for kind, ratio in ratios.items()}


def run(folder: Path) -> dict[str, Any]:
    """Every model with every seed, and the time of their steps."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    vocabs = (Vocab(p.source for p in data.train), Vocab(p.target for p in data.train))
    parts = {part: list(getattr(data, part)) for part in ("train", "valid", "test", "structures")}
    parts["valid"] = parts["valid"][:200]
    training = {
        "epochs": EPOCHS,
        "batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        "dropout": DROPOUT,
        "half_widths": WINDOWS,
        "threads": 1,
    }
    times = step_times(parts["train"], vocabs)
    runs = [measure(kind, seed, parts, vocabs) for seed in SEEDS for kind in KINDS]
    return {"training": training, "step_time_against_bahdanau": times, "runs": runs}
