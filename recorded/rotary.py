"""The small Transformer of `translators` with rotary positions in the place of the sinusoids, with three seeds.

Sizes, batches, learning rate and the six passes are those of that script. It is tested on the sentences of
`architectures`, so that it can stand beside the models there.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import corpus
from attn_book.data import Batches, Vocab
from attn_book.train import fit
from attn_book.translation import translate
from attn_core.positions import Rotary
from attn_core.transformer import Transformer, TransformerConfig
from recorded.architectures import by_length, quality
from recorded.bahdanau import rounded
from recorded.translators import BATCH_SIZE, TRAINING

SEEDS = (0, 1, 2)
SIZES: dict[str, Any] = {"model_dim": 64, "num_heads": 4, "num_layers": 2, "feed_forward_dim": 256, "dropout": 0.0}


def run(folder: Path) -> dict[str, Any]:
    """Every seed, trained and tested."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus(test=3_000)
    pairs, test, structures = list(data.train), list(data.test), list(data.structures)
    vocabs = (Vocab(p.source for p in pairs), Vocab(p.target for p in pairs))
    config = TransformerConfig(len(vocabs[1]), len(vocabs[0]), **SIZES, norm_first=True)
    runs: list[dict[str, Any]] = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = Transformer(config, positions=partial(Rotary, config.model_dim // config.num_heads))
        batches = Batches(pairs, *vocabs, batch_size=BATCH_SIZE, seed=seed)
        fit(model, batches, seed=seed, device="cpu", progress=False, **TRAINING["transformer"])
        words, shifted = (
            [t.words for t in translate(model, [p.source for p in part], *vocabs)] for part in (test, structures)
        )
        found: dict[str, Any] = {"seed": seed, "parameters": sum(p.numel() for p in model.parameters())}
        # As in `architectures`: the first 1,000 test sentences, and all of them by length.
        found |= {"test": quality(words[:1_000], test[:1_000]), "by_length": by_length(words, test)}
        runs.append(found | {"structures": quality(shifted, structures)})
        print(seed, found["test"], found["by_length"][-1], flush=True)
    training = {"pairs": len(pairs), "batch_size": BATCH_SIZE, **SIZES, **TRAINING["transformer"], "threads": 1}
    return rounded({"training": training, "runs": runs})
