"""The decoder that writes stories in the chapter on the next token: one model of `scaling_law.py`, with its parameters.

It is the model with the hidden size 64 that reads 64,000 stories, with the first seed and its best learning rate.
"""

import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from attn_book.corpus import paragraph_corpus
from attn_book.data import Vocab
from attn_book.pretrain import StreamBatches, next_token_loss
from attn_book.train import fit
from recorded.scaling_law import BATCH_SIZE, LENGTH, TEST, build, mean_loss

SEEDS = (0,)
WIDTH, STORIES, LEARNING_RATE = 64, 64_000, 1 / 64


def run(folder: Path) -> dict[str, Any]:
    """Train the model, write its parameters, and say what it loses on the test stories."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    corpus = paragraph_corpus(train=STORIES, valid=0, test=TEST)
    texts = [story.source for story in corpus.train]
    vocab = Vocab(texts)
    model = build(WIDTH, len(vocab), SEEDS[0])
    batches = StreamBatches(texts, vocab, batch_size=BATCH_SIZE, length=LENGTH, seed=SEEDS[0])
    started = time.process_time()
    fit(model, batches, epochs=1, learning_rate=LEARNING_RATE, loss=next_token_loss, seed=SEEDS[0], progress=False)
    seconds = time.process_time() - started
    save_file(model.state_dict(), folder / "writer.safetensors")
    loss = mean_loss(model, [story.source for story in corpus.test], vocab)
    return {
        "width": WIDTH,
        "stories": STORIES,
        "tokens": list(vocab.tokens),  # which row of the embedding is whose
        "test": round(loss, 4),
        "cpu_seconds": round(seconds, 1),
    }
