"""The heatmap of the landing page: what a trained model attends to in the sentence that the book carries."""

from pathlib import Path
from typing import Any

import torch

from attn_book.corpus import EXAMPLE, corpus
from attn_book.data import Batches, Vocab
from attn_book.teacher_forcing import teacher_forced_attention
from attn_book.train import fit
from attn_book.translation import translate
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq

SEEDS = (0,)


def run(folder: Path) -> dict[str, Any]:
    """Train the live model of the chapter on Bahdanau attention, and keep its attention to the example."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    torch.manual_seed(SEEDS[0])
    pairs = corpus().train
    english, french = Vocab(p.source for p in pairs), Vocab(p.target for p in pairs)
    encoder = Encoder(len(english), embed_dim=64, hidden_dim=64, dropout=0.1)
    decoder = BahdanauDecoder(len(french), embed_dim=64, hidden_dim=128, memory_dim=128, dropout=0.1)
    model = Seq2Seq(encoder, decoder)
    fit(
        model,
        Batches(pairs[:20_000], english, french, batch_size=32, seed=0),
        epochs=2,
        learning_rate=7e-3,
        progress=False,
    )
    (weights,) = teacher_forced_attention(model, [EXAMPLE], english, french)
    translation = translate(model, [EXAMPLE.source], english, french, beam_size=4)[0]
    return {
        "title": "English to French",
        "source": [*EXAMPLE.source, "<eos>"],
        "target": list(EXAMPLE.target),
        "weights": [[round(weight, 4) for weight in row] for row in weights.tolist()],
        "links": sorted(EXAMPLE.links),
        "translation": " ".join(translation.words),
    }
