"""A Transformer on two levels beside a flat one of the same size, on the documents of `hierarchy` and longer ones.

Three models have two layers and the same parameters, but for one vector. The *flat* one reads the document as one text,
and its answer is read off a class token. In the *masked* one, the first layer of the same model sees only the words of
one sentence. The one of two *levels* has a class token in each sentence, and its second layer reads nothing but these.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.corpus import document_corpus
from attn_book.data import Vocab
from attn_core.positions import Rotary
from attn_core.transformer import EncoderLayer, TransformerConfig
from recorded.bahdanau import rounded
from recorded.hierarchy import NOUNS, PAIRS, encode, share_right, train

SEEDS = (0, 1, 2, 3, 4)
FORMS = ("flat", "masked", "levels")
LENGTHS = (24, 48, 96)
SIZE, HEADS, HIDDEN, STEPS, LEARNING_RATE = 32, 4, 64, 800, 4e-3


class Reader(nn.Module):
    """Two layers, of which the second sees the whole text, or a vector of each sentence."""

    def __init__(self, vocab_size: int, form: str) -> None:
        super().__init__()
        self.form = form
        options: dict[str, Any] = {"num_heads": HEADS, "feed_forward_dim": HIDDEN, "dropout": 0.0, "norm_first": True}
        config = TransformerConfig(vocab_size, model_dim=SIZE, **options)
        self.embedding = nn.Embedding(vocab_size, SIZE)
        self.asks = nn.Parameter(torch.randn(2 if form == "levels" else 1, SIZE))  # class tokens
        self.layers = nn.ModuleList(EncoderLayer(config, positions=Rotary(SIZE // HEADS)) for _ in range(2))
        self.norm, self.answer = nn.LayerNorm(SIZE), nn.Linear(SIZE, len(NOUNS))

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens (B, N, T)``, padded with 0, to logits of the nouns."""
        if self.form == "levels":
            words = tokens.flatten(0, 1)
            vectors = self._read(0, *self._ask(0, self.embedding(words), words != 0)).unflatten(0, tokens.shape[:2])
            document = self._read(1, *self._ask(1, vectors, (tokens != 0).any(-1)))
        else:
            words, sentence = _one_text(tokens)
            x, there = self._ask(0, self.embedding(words), words != 0)
            mask = there[:, None, None]
            own = functional.pad(sentence, (1, 0), value=-1)  # the class token is a sentence of its own
            first = mask & (own[:, None, :, None] == own[:, None, None, :]) if self.form == "masked" else mask
            document = self.layers[1](self.layers[0](x, mask=first), mask=mask)[:, 0]
        return self.answer(self.norm(document))

    def _ask(self, level: int, x: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors ``(R, T, C)`` with a class token before them, and which of them are there."""
        first = self.asks[level].expand(x.shape[0], 1, -1)
        return torch.cat([first, x], 1), functional.pad(there, (1, 0), value=True)

    def _read(self, level: int, x: Tensor, there: Tensor) -> Tensor:
        """What the layer of a level makes of the class token."""
        made: Tensor = self.layers[level](x, mask=there[:, None, None])[:, 0]
        return made


def _one_text(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Of ``(B, N, T)`` the words without the padding between them ``(B, S)``, and the number of each one's sentence."""
    there = (tokens != 0).flatten(1)
    order = (~there).long().argsort(dim=1, stable=True)[:, : int(there.sum(1).max())]
    sentence = torch.arange(tokens.shape[1]).repeat_interleave(tokens.shape[2]).expand(len(tokens), -1)
    return tokens.flatten(1).gather(1, order), sentence.gather(1, order)


def run(folder: Path) -> dict[str, Any]:
    """The share of right nouns in new documents, as long as those in training and of up to 96 sentences."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    corpora = {length: document_corpus(length) for length in LENGTHS}
    documents = corpora[LENGTHS[0]]
    vocab = Vocab(words for one in documents.train for words in one.sentences)
    tests = {"train": encode(documents.train[:800], vocab), "test": encode(documents.test, vocab)}
    tests |= {str(length): encode(corpus.longer, vocab) for length, corpus in corpora.items()}
    runs, sizes, given = [], {}, encode(documents.train, vocab)
    for seed in SEEDS:
        for form in FORMS:
            torch.manual_seed(seed)
            model = Reader(len(vocab), form)
            sizes[form] = sum(parameter.numel() for parameter in model.parameters())
            train(model, given, STEPS, LEARNING_RATE)
            found = {name: share_right(model, parts) for name, parts in tests.items()}
            runs.append({"form": form, "seed": seed} | found)
            print(rounded(runs[-1]), flush=True)
    words = {name: round(int((parts[0] != 0).sum()) / len(parts[0])) for name, parts in tests.items()}
    training = {"steps": STEPS, "pairs": PAIRS, "learning_rate": LEARNING_RATE, "model_dim": SIZE, "threads": 1}
    return rounded({"training": training, "parameters": sizes, "words": words, "runs": runs})
