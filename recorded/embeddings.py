"""What word vectors are worth that were pretrained on plain text.

English vectors from the English side of the corpus alone: positive pointwise mutual information of words at most two
places apart, then a truncated singular value decomposition. A small Transformer translates with a source embedding
that is trained from random numbers, random and frozen, pretrained and frozen, or pretrained and tuned; with few, some
and many pairs.

Source: Levy and Goldberg 2014 (what skip-gram factorises); Levy, Goldberg and Dagan 2015 (no singular values).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.corpus import corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.metrics import bleu, exact_match
from attn_book.train import fit
from attn_book.translation import translate
from attn_core.transformer import Transformer, TransformerConfig
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
KINDS = ("trained", "random, frozen", "pretrained, frozen", "pretrained, tuned")
EPOCHS = {1_000: 20, 5_000: 5, 20_000: 2}
"""Pairs to train with, and how often each is seen."""
BATCH_SIZE = 32
LEARNING_RATE = 4e-3
SIZES: dict[str, Any] = {"model_dim": 64, "num_heads": 4, "num_layers": 2, "feed_forward_dim": 128, "norm_first": True}
WINDOW = 2
"""Two words are neighbours when at most this many places apart."""
TESTED = 500
ASKED = {"english": ("cat", "soup", "school", "ate", "my", "not"), "french": ("chat", "mange", "mon", "pas")}
"""Words whose nearest neighbours are recorded."""


def word_vectors(sentences: Sequence[Sequence[str]], vocab: Vocab, dim: int) -> Tensor:
    """Vectors ``(V, dim)`` of length 1, one for each word of ``vocab``; zeros for what the sentences do not hold.

    Length 1 is what a row of ``TokenEmbedding`` has at its start, where ``dim`` numbers have variance 1/``dim``.
    """
    counts = torch.zeros(len(vocab), len(vocab))
    for sentence in sentences:
        ids = torch.tensor([*vocab.encode(sentence), Vocab.EOS])
        for apart in range(1, WINDOW + 1):
            counts.index_put_((ids[:-apart], ids[apart:]), torch.tensor(1.0), accumulate=True)
    counts += counts.T.clone()
    ones = counts.sum(1)
    association = (counts * counts.sum() / (ones[:, None] * ones)).log()
    left, _, _ = torch.linalg.svd(association.nan_to_num(0.0, neginf=0.0).clamp(min=0.0))
    return functional.normalize(left[:, :dim], dim=1)


def nearest(table: Tensor, vocab: Vocab, word: str, count: int = 5) -> list[tuple[str, float]]:
    """The words whose vectors have the greatest cosine with this word's."""
    near = table @ table[vocab.encode([word])[0]]
    values, ids = near.topk(count + 1)
    return [(vocab.tokens[i], value) for value, i in zip(values.tolist(), ids.tolist(), strict=True)][1:]


def build(kind: str, table: Tensor, target_size: int) -> Transformer:
    """A Transformer whose source embedding begins as its kind says; everything else begins alike."""
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {KINDS}, got {kind!r}")
    model = Transformer(TransformerConfig(target_size, len(table), **SIZES))
    weight = model.source_embedding.tokens.weight
    if kind.startswith("pretrained"):
        with torch.no_grad():
            weight.copy_(table)
    weight.requires_grad_(not kind.endswith("frozen"))
    return model


def closeness(table: Tensor) -> float:
    """The median over words of the cosine with the nearest other word: 1 where each has a double."""
    words = functional.normalize(table[len(Vocab.SPECIALS) :], dim=1)
    return (words @ words.T).fill_diagonal_(-1.0).amax(1).median().item()


def measure(
    kind: str, pairs: int, seed: int, parts: dict[str, list[Pair]], vocabs: tuple[Vocab, Vocab], table: Tensor
) -> dict[str, Any]:
    """One model, trained on the first ``pairs`` pairs and measured; BLEU and exact match in percent."""
    torch.manual_seed(seed)
    model = build(kind, table, len(vocabs[1]))
    batches = Batches(parts["train"][:pairs], *vocabs, batch_size=BATCH_SIZE, seed=seed)
    history = fit(model, batches, epochs=EPOCHS[pairs], learning_rate=LEARNING_RATE, seed=seed, progress=False)
    found = [t.words for t in translate(model, [p.source for p in parts["test"]], *vocabs)]
    wanted = [p.target for p in parts["test"]]
    result = {
        "embedding": kind,
        "pairs": pairs,
        "seed": seed,
        "trainable": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "train_seconds": history.seconds,
        "bleu": bleu(found, wanted),
        "exact": 100 * exact_match(found, wanted),
        "closeness": closeness(model.source_embedding.tokens.weight.detach()),
    }
    print(" ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in result.values()), flush=True)
    return rounded(result)


def run(folder: Path) -> dict[str, Any]:
    """Pretrain both tables, show their neighbours, and translate from English with every kind of embedding."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    sides = {"english": [p.source for p in data.train], "french": [p.target for p in data.train]}
    vocabs = (Vocab(sides["english"]), Vocab(sides["french"]))
    tables, neighbours = {}, {}
    for vocab, (language, sentences) in zip(vocabs, sides.items(), strict=True):
        tables[language] = word_vectors(sentences, vocab, SIZES["model_dim"])
        neighbours[language] = {word: nearest(tables[language], vocab, word) for word in ASKED[language]}
    parts = {"train": list(data.train), "test": list(data.test[:TESTED])}
    runs = [
        measure(kind, pairs, seed, parts, vocabs, tables["english"])
        for seed in SEEDS
        for pairs in EPOCHS
        for kind in KINDS
    ]
    training = {
        "epochs": {str(pairs): epochs for pairs, epochs in EPOCHS.items()},
        "batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        "sizes": SIZES,
        "threads": 1,
    }
    pretraining = {"sentences": len(data.train), "window": WINDOW, "closeness": closeness(tables["english"])}
    return rounded({"training": training, "pretraining": pretraining, "neighbours": neighbours, "runs": runs})
