"""Does Luong's decoder translate worse than Bahdanau's because it is smaller and has a simpler output layer?

Each of the two decoders of `luong` is trained as there, but with the output layer of the other.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attn_book.corpus import corpus
from attn_book.data import Vocab
from attn_core.scores import Additive
from attn_core.seq2seq import BahdanauDecoder, Encoder, LuongDecoder, Seq2Seq
from attn_core.seq2seq.luong import LuongState
from recorded import luong
from recorded.bahdanau import BATCH_SIZE, DROPOUT, EPOCHS, LEARNING_RATE

SEEDS = (0, 1)
KINDS = ("concat, maxout", "Bahdanau, no maxout")


class PlainOutput(nn.Module):
    """Luong's output layer, in the place of Bahdanau's."""

    def __init__(self, vocab_size: int, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.attentional = nn.Linear(input_dim, hidden_dim, bias=False)
        self.dropout = nn.Dropout(DROPOUT)
        self.logits = nn.Linear(hidden_dim, vocab_size)

    def forward(self, state: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        """Logits of the next token, from the state and the context alone."""
        both = torch.cat([context, state], dim=-1)
        return self.logits(self.dropout(torch.tanh(self.attentional(both))))


class MaxoutLuong(LuongDecoder):
    """Luong's decoder with Bahdanau's output layer: a maxout layer over state, context and the last word."""

    def __init__(self, vocab_size: int, **sizes: Any) -> None:
        super().__init__(vocab_size, **sizes)
        hidden = self.logits.in_features
        self.attentional = nn.Linear(self.attentional.in_features + sizes["embed_dim"], 2 * hidden)

    def _advance(self, embedded: Tensor, state: LuongState) -> tuple[Tensor, Tensor, LuongState]:
        queries, hidden = self.rnn(embedded, state.hidden[None].contiguous())
        context, weights = self._attend(queries, state)
        pairs = self.attentional(torch.cat([queries, context, embedded], dim=-1)).unflatten(-1, (-1, 2))
        position = state.position + embedded.shape[1]
        return pairs.amax(-1), weights, replace(state, hidden=hidden[0], weights=weights[:, -1], position=position)


def build(kind: str, source_size: int, target_size: int) -> Seq2Seq:
    """A model of `luong` with another output layer."""
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {KINDS}, got {kind!r}")
    encoder = Encoder(source_size, embed_dim=64, hidden_dim=64, dropout=DROPOUT)
    sizes: dict[str, Any] = {"embed_dim": 64, "hidden_dim": 128, "memory_dim": 128, "dropout": DROPOUT}
    if kind == "concat, maxout":
        return Seq2Seq(encoder, MaxoutLuong(target_size, **sizes, score=Additive(128, 128, 128)))
    decoder = BahdanauDecoder(target_size, **sizes)
    decoder.output = PlainOutput(target_size, 256, 128)  # type: ignore[assignment]
    return Seq2Seq(encoder, decoder)


def run(folder: Path) -> dict[str, Any]:
    """Every model with every seed."""
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
        "threads": 1,
    }
    runs = [luong.measure(kind, seed, parts, vocabs, build=build) for seed in SEEDS for kind in KINDS]
    return {"training": training, "runs": runs}
