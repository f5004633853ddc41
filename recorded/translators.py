"""The two translators that readers run in the page, and what eight bits a weight cost them.

Bahdanau's model with attention and a Transformer, of a size that fits into a page, learn the grammar's
24,000 pairs. What `Translator` shows of them goes to `results/translators/`, a file for each.
"""

import base64
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attn_book.corpus import EXAMPLE, corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.train import fit
from attn_book.translation import translate
from attn_book.widgets import Translator
from attn_book.widgets.exported import dequantised
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.transformer import Transformer, TransformerConfig
from recorded.bahdanau import rounded, scores

SEEDS = (0,)
BATCH_SIZE = 32
DROPOUT = 0.1  # the Transformer does better without
TRAINING: dict[str, dict[str, Any]] = {
    "bahdanau": {"epochs": 4, "learning_rate": 5e-3},
    "transformer": {"epochs": 6, "learning_rate": 4e-3},
}
COMPARED = 200
"""Test sentences whose logits are compared; BLEU is that of all."""


def build(kind: str, source_size: int, target_size: int) -> nn.Module:
    """A new model of the sizes that are exported."""
    if kind == "bahdanau":
        encoder = Encoder(source_size, embed_dim=48, hidden_dim=56, dropout=DROPOUT)
        decoder = BahdanauDecoder(target_size, embed_dim=48, hidden_dim=112, memory_dim=112, dropout=DROPOUT)
        return Seq2Seq(encoder, decoder)
    config = TransformerConfig(
        target_size,
        source_vocab_size=source_size,
        model_dim=64,
        num_heads=4,
        num_layers=2,
        feed_forward_dim=256,
        dropout=0.0,
        norm_first=True,
    )
    return Transformer(config)


def stored_bytes(exported: dict[str, Any]) -> int:
    """The bytes of all weights, before base64."""
    return sum(len(base64.b64decode(text)) for parts in exported["weights"].values() for text in parts.values())


@torch.no_grad()
def true_logits(model: nn.Module, pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> Tensor:
    """The logits ``(n, V)`` of every target word and <eos>, each given the true words before it."""
    (batch,) = Batches(pairs, *vocabs, batch_size=len(pairs))
    logits = model.eval()(batch.source, batch.source_lengths, batch.target_in)
    return logits[batch.target_out != Vocab.PAD]


def measure(kind: str, folder: Path) -> dict[str, Any]:
    """Train one model, export it into the folder, and compare it with what was exported."""
    data = corpus()
    pairs, test = list(data.train), list(data.test)
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    torch.manual_seed(SEEDS[0])
    model = build(kind, len(vocabs[0]), len(vocabs[1]))
    batches = Batches(pairs, *vocabs, batch_size=BATCH_SIZE, seed=SEEDS[0])
    history = fit(model, batches, seed=SEEDS[0], device="cpu", progress=False, **TRAINING[kind])
    exported, smaller = Translator.of(model, *vocabs, " ".join(EXAMPLE.source)).exported, dequantised(model)
    text = json.dumps(exported, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    (folder / f"{kind}.json").write_text(text + "\n", encoding="utf-8")
    logits, nearly = (true_logits(each, test[:COMPARED], vocabs) for each in (model, smaller))
    words = [[t.words for t in translate(each, [p.source for p in test], *vocabs)] for each in (model, smaller)]
    found = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes": stored_bytes(exported),
        "train_seconds": history.seconds,
        "test": scores(model, test, vocabs),  # type: ignore[arg-type]
        "test_exported": scores(smaller, test, vocabs),  # type: ignore[arg-type]
        "test_exported_beam_4": scores(smaller, test, vocabs, beam_size=4),  # type: ignore[arg-type]
        "translated_otherwise": sum(a != b for a, b in zip(*words, strict=True)) / len(test),
        "logits": {
            "mean_difference": (logits - nearly).abs().mean().item(),
            "greatest_difference": (logits - nearly).abs().max().item(),
            "spread": logits.std(-1).mean().item(),
        },
        "example": " ".join(translate(smaller, [EXAMPLE.source], *vocabs)[0].words),
    }
    print(kind, found, flush=True)
    return rounded(found)


def run(folder: Path) -> dict[str, Any]:
    """Both models, before and after they are exported."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    own = folder / "translators"
    own.mkdir(exist_ok=True)
    training = {"batch_size": BATCH_SIZE, "dropout": DROPOUT, "threads": 1, **TRAINING}
    return {"training": training} | {kind: measure(kind, own) for kind in TRAINING}
