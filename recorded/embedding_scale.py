"""The small translator of `ablations` without the factor √C: embeddings of variance 1/C, plus sinusoids."""

from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import corpus
from attn_book.data import Vocab
from attn_book.metrics import bleu, exact_match
from attn_book.translation import translate
from attn_core.transformer import Transformer, TransformerConfig
from recorded.ablations import ABLATED, ABLATED_TRAINING, SIZES, curve
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)


def run(folder: Path) -> dict[str, Any]:
    """The variant with every seed, trained and measured as those of `ablations`."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    pairs, valid, test = list(data.train), list(data.valid)[:200], list(data.test)[:300]
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    runs: list[dict[str, Any]] = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        config = TransformerConfig(len(vocabs[1]), len(vocabs[0]), **SIZES, **ABLATED, scale_embedding=False)
        model = Transformer(config)
        steps, losses = curve(model, seed, pairs, valid, vocabs, **ABLATED_TRAINING)
        found = [t.words for t in translate(model, [p.source for p in test], *vocabs)]
        wanted = [p.target for p in test]
        quality = {"bleu": bleu(found, wanted), "exact": 100 * exact_match(found, wanted)}
        parameters = sum(p.numel() for p in model.parameters())
        runs.append({"variant": "no √C", "seed": seed, "parameters": parameters, "loss": losses, **quality})
        print(seed, losses[-1], quality, flush=True)
    return rounded({"steps": steps, "runs": runs})
