"""A Transformer beside chapter 2's recurrent translator, on the grammar's pairs.

The recurrent models are those of `bahdanau` with a bidirectional encoder, as they were recorded, with the learning rate
chosen there. A Transformer with about as many parameters is trained on the same batches, for as many epochs, with the
same seeds; its learning rate is the best of three, by the held-out loss with the first seed. It is trained twice, with
the recurrent models' dropout and without any.
"""

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attn_book.corpus import corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.metrics import bleu, exact_match
from attn_book.train import fit, token_loss
from attn_book.translation import translate
from attn_core.transformer import Transformer, TransformerConfig
from recorded import bahdanau
from recorded.ablations import held_out
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
MODELS = ("recurrent", "transformer")
RATES = (2e-3, 4e-3, 6e-3)
SIZES: dict[str, Any] = {"model_dim": 96, "num_heads": 4, "num_layers": 2, "feed_forward_dim": 192}
DROPOUTS = {"transformer": bahdanau.DROPOUT, "transformer without dropout": 0.0}
CURVE = 12
"""Points on each curve."""
COSTS = (8, 16, 32, 64)
"""Lengths of both sides, in tokens, at which a training step is measured."""
REPEATS = 5


Vocabs = tuple[Vocab, Vocab]


def build(kind: str, vocabs: Vocabs) -> Any:
    """One of the models."""
    source, target = (len(vocab) for vocab in vocabs)
    if kind == "recurrent":
        return bahdanau.build("two-way", source, target)
    return Transformer(TransformerConfig(target, source, **SIZES, dropout=DROPOUTS[kind], norm_first=True))


def train(
    kind: str, pairs: list[Pair], valid: list[Pair], vocabs: Vocabs, seed: int, rate: float
) -> tuple[Any, list[int], list[float]]:
    """A trained Transformer, and the steps and held-out losses of its run."""
    torch.manual_seed(seed)
    model = build(kind, vocabs)
    batches = Batches(pairs, *vocabs, batch_size=bahdanau.BATCH_SIZE, seed=seed)
    every = bahdanau.EPOCHS * len(batches) // CURVE
    validate = partial(held_out, batches=Batches(valid, *vocabs, batch_size=100))
    settings: dict[str, Any] = {"epochs": bahdanau.EPOCHS, "learning_rate": rate, "seed": seed, "device": "cpu"}
    history = fit(model, batches, validate=validate, validate_every=every, progress=False, **settings)
    return model, [int(v["step"]) for v in history.validation], [v["loss"] for v in history.validation]


def quality(words: list[list[str]], pairs: list[Pair]) -> dict[str, float]:
    """BLEU and exact match in percent."""
    wanted = [p.target for p in pairs]
    return {"bleu": bleu(words, wanted), "exact": 100 * exact_match(words, wanted)}


def by_length(words: list[list[str]], pairs: list[Pair]) -> list[dict[str, float]]:
    """The quality among sentences of like source length."""
    rows = []
    for low, high in bahdanau.LENGTHS:
        chosen = [number for number, pair in enumerate(pairs) if low <= len(pair.source) <= high]
        if chosen:
            found = quality([words[number] for number in chosen], [pairs[number] for number in chosen])
            rows.append({"from": low, "to": high, "sentences": len(chosen), **found})
    return rows


def recurrent(folder: Path) -> list[dict[str, Any]]:
    """The recurrent models, as their record has them."""
    earlier = json.loads((folder / "bahdanau.json").read_text(encoding="utf-8"))
    about = {"model": "recurrent", "learning_rate": earlier["training"]["learning_rate"]}
    kept = ("seed", "parameters", "test", "structures", "by_length")
    runs = [run for run in earlier["runs"] if (run["model"], run["direction"]) == ("two-way", "en-fr")]
    return [about | {name: run[name] for name in kept} for run in runs]


def cost(vocabs: Vocabs) -> list[dict[str, Any]]:
    """Processor time and operations of a training step, per target token, both models taking turns."""
    rows = []
    for length in COSTS:
        tokens = torch.randint(4, 400, (bahdanau.BATCH_SIZE, length))
        lengths = torch.full((bahdanau.BATCH_SIZE,), length)
        models = {kind: build(kind, vocabs).eval() for kind in MODELS}  # dropout counts for neither

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
    """What a step costs; then Transformers at three learning rates, and with every seed at the best."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus(test=3_000)
    pairs, valid = list(data.train), list(data.valid)[:200]
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    costs, runs = cost(vocabs), recurrent(folder)
    tuning = []
    for kind, dropout in DROPOUTS.items():
        tried = {rate: train(kind, pairs, valid, vocabs, SEEDS[0], rate) for rate in RATES}
        tuning += [{"model": kind, "learning_rate": rate, "loss": tried[rate][2][-1]} for rate in RATES]
        best = min(tried, key=lambda rate: tried[rate][2][-1])
        for seed in SEEDS:
            model, steps, losses = tried[best] if seed == SEEDS[0] else train(kind, pairs, valid, vocabs, seed, best)
            found: dict[str, Any] = {"model": kind, "seed": seed, "dropout": dropout, "learning_rate": best}
            found |= {"loss": losses, "parameters": sum(p.numel() for p in model.parameters())}
            # As in `bahdanau`: the first 1,000 test sentences, and all of them by length.
            words = [t.words for t in translate(model, [p.source for p in data.test], *vocabs)]
            found["test"] = quality(words[:1_000], list(data.test)[:1_000])
            found["by_length"] = by_length(words, list(data.test))
            words = [t.words for t in translate(model, [p.source for p in data.structures], *vocabs)]
            found["structures"] = quality(words, list(data.structures))
            runs.append(found)
            print(found, flush=True)
    training = {
        "pairs": len(pairs),
        "epochs": bahdanau.EPOCHS,
        "batch_size": bahdanau.BATCH_SIZE,
        "transformer": SIZES,
        "recurrent": bahdanau.SIZES,
        "threads": 1,
    }
    return rounded({"training": training, "steps": steps, "tuning": tuning, "runs": runs, "cost": costs})
