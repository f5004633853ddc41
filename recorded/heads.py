"""What single heads learn, and what each is worth: multi-head models of one size.

The translator of `luong` with `MultiHeadAttention` in the score's place, 128 units shared by 1 to 8 heads, and with
fewer key-value heads than query heads. Each head's own alignment error, and the translations with that head switched
off, and with that head alone.
"""

from pathlib import Path
from typing import Any

import torch

from attn_book.alignment import alignment_error
from attn_book.corpus import EXAMPLE, corpus
from attn_book.data import Batches, Pair, Vocab
from attn_book.metrics import bleu, exact_match
from attn_book.teacher_forcing import teacher_forced_heads
from attn_book.train import fit
from attn_book.translation import translate
from attn_core import MultiHeadAttention
from attn_core.seq2seq import Encoder, MultiHeadDecoder, Seq2Seq
from recorded.bahdanau import BATCH_SIZE, DROPOUT, EPOCHS, LEARNING_RATE, rounded

SEEDS = (0, 1, 2)
KINDS = {"1 head": (1, 1), "2 heads": (2, 2), "4 heads": (4, 4), "8 heads": (8, 8), "8 of 2": (8, 2), "8 of 1": (8, 1)}
"""Query heads and key-value heads."""
TRIED = 400
"""Test sentences translated with a head switched off."""


def build(kind: str, source_size: int, target_size: int) -> Seq2Seq:
    """A model with 128 recurrent units a side, as in `bahdanau`."""
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {tuple(KINDS)}, got {kind!r}")
    heads, kv_heads = KINDS[kind]
    encoder = Encoder(source_size, embed_dim=64, hidden_dim=64, dropout=DROPOUT)
    sizes: dict[str, Any] = {"embed_dim": 64, "hidden_dim": 128, "memory_dim": 128, "dropout": DROPOUT}
    return Seq2Seq(encoder, MultiHeadDecoder(target_size, **sizes, num_heads=heads, num_kv_heads=kv_heads))


def quality(model: Seq2Seq, pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> dict[str, float]:
    """BLEU and exact match in percent."""
    found = [t.words for t in translate(model, [p.source for p in pairs], *vocabs)]
    wanted = [p.target for p in pairs]
    return {"bleu": bleu(found, wanted), "exact": 100 * exact_match(found, wanted)}


@torch.no_grad()
def with_heads(model: Seq2Seq, on: set[int], pairs: list[Pair], vocabs: tuple[Vocab, Vocab]) -> dict[str, float]:
    """The quality when only these heads speak: the others' columns of the output projection are zero meanwhile."""
    layer = model.decoder.attention
    assert isinstance(layer, MultiHeadAttention)
    weight, kept = layer.out.weight, layer.out.weight.clone()
    for head in set(range(layer.num_heads)) - on:
        weight[:, head * layer.head_dim : (head + 1) * layer.head_dim] = 0
    found = quality(model, pairs, vocabs)
    weight.copy_(kept)
    return found


def measure(kind: str, seed: int, parts: dict[str, list[Pair]], vocabs: tuple[Vocab, Vocab]) -> dict[str, Any]:
    """One model, trained, measured, and measured again head by head."""
    torch.manual_seed(seed)
    model = build(kind, len(vocabs[0]), len(vocabs[1]))
    batches = Batches(parts["train"], *vocabs, batch_size=BATCH_SIZE, seed=seed)
    history = fit(model, batches, epochs=EPOCHS, learning_rate=LEARNING_RATE, seed=seed, progress=False)
    heads, tried = range(KINDS[kind][0]), parts["test"][:TRIED]
    maps, links = teacher_forced_heads(model, parts["test"], *vocabs), [p.links for p in parts["test"]]
    (example,) = teacher_forced_heads(model, [EXAMPLE], *vocabs)
    result = {
        "model": kind,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "train_seconds": history.seconds,
        "test": quality(model, parts["test"], vocabs),
        "structures": quality(model, parts["structures"], vocabs),
        "alignment_error": alignment_error([m.mean(0) for m in maps], links),
        "alignment_error_of_heads": [alignment_error([m[head] for m in maps], links) for head in heads],
        "all_on": with_heads(model, set(heads), tried, vocabs),
        "one_off": [with_heads(model, set(heads) - {head}, tried, vocabs) for head in heads],
        "one_on": [with_heads(model, {head}, tried, vocabs) for head in heads],
        "example": example.tolist() if seed == SEEDS[0] else None,
    }
    print(f"{kind}, seed {seed}: {result['test']}; {history.seconds:.0f} s", flush=True)
    return rounded(result)


def run(folder: Path) -> dict[str, Any]:
    """Every kind with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    vocabs = (Vocab(p.source for p in data.train), Vocab(p.target for p in data.train))
    parts = {part: list(getattr(data, part)) for part in ("train", "test", "structures")}
    training = {
        "epochs": EPOCHS,
        "batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        "dropout": DROPOUT,
        "threads": 1,
        "tried_with_heads_off": TRIED,
    }
    runs = [measure(kind, seed, parts, vocabs) for seed in SEEDS for kind in KINDS]
    return {"training": training, "heads": {kind: list(sizes) for kind, sizes in KINDS.items()}, "runs": runs}
