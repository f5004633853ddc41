"""Attention against the mean on two levels: documents of which one sentence decides what a word means.

The model, the documents and the training are those of the page on hierarchical attention. A model that takes means has
both questions at zero.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from attn_book.context import AttentionPooling
from attn_book.corpus import DOCUMENT_WORDS, SENSES, Document, DocumentCorpus, document_corpus
from attn_book.data import Vocab
from attn_book.train.schedules import cosine
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2, 3, 4)
SIZES = (600, 4000)
SIZE, STEPS, PAIRS, LEARNING_RATE = 32, 300, 16, 8e-3
Encoded = tuple[Tensor, Tensor, Tensor]
NOUNS = [sense.noun for word in DOCUMENT_WORDS for sense in SENSES[word]]


class Reader(nn.Module):
    """Words make the vectors of sentences, and these that of the document, from which a linear layer reads the noun."""

    def __init__(self, vocab_size: int, attends: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, SIZE)
        self.grus = nn.ModuleList(nn.GRU(SIZE, SIZE // 2, bidirectional=True, batch_first=True) for _ in range(2))
        self.words, self.sentences = AttentionPooling(SIZE), AttentionPooling(SIZE)
        self.answer = nn.Linear(SIZE, len(NOUNS))
        for pooling in (self.words, self.sentences):
            if not attends:
                nn.init.zeros_(pooling.question).requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens (B, N, T)``, padded with 0, to logits of the nouns."""
        x, mask = self.embedding(tokens).flatten(0, 1), (tokens != 0).flatten(0, 1)
        sentences = self._level(self.grus[0], self.words, x, mask).unflatten(0, tokens.shape[:2])
        there = mask.any(-1).unflatten(0, tokens.shape[:2])
        return self.answer(self._level(self.grus[1], self.sentences, sentences, there))

    def _level(self, gru: nn.Module, pooling: AttentionPooling, x: Tensor, mask: Tensor) -> Tensor:
        """Rows of vectors ``(R, T, C)`` to one vector each, zero where the mask has none."""
        there = mask.any(-1)
        packed = pack_padded_sequence(x[there], mask[there].sum(-1), batch_first=True, enforce_sorted=False)
        made, _ = pad_packed_sequence(gru(packed)[0], batch_first=True, total_length=x.shape[1])
        h = x.new_zeros(x.shape).index_put((there,), made)
        return pooling(h, mask[:, None])[:, 0]


def encode(documents: list[Document], vocab: Vocab) -> Encoded:
    """Tokens ``(B, N, T)``, the two candidates ``(B, 2)`` and which one is right ``(B,)``."""
    rows = [pad_sequence([torch.tensor(vocab.encode(text)) for text in one.sentences], True) for one in documents]
    longest = max(row.shape[1] for row in rows)
    tokens = pad_sequence([functional.pad(row, (0, longest - row.shape[1])) for row in rows], batch_first=True)
    candidates = [[NOUNS.index(sense.noun) for sense in SENSES[one.example.word]] for one in documents]
    return tokens, torch.tensor(candidates), torch.tensor([one.example.sense for one in documents])


def train(model: nn.Module, parts: Encoded, steps: int, learning_rate: float) -> nn.Module:
    """The model after it has read the documents in pairs of twins."""
    rate = cosine(steps, peak=learning_rate, warmup=0.1)
    optimizer, (tokens, candidates, senses) = torch.optim.Adam(model.parameters()), parts
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate(step)
        first = 2 * torch.randint(len(tokens) // 2, (PAIRS,))
        rows = torch.cat((first, first + 1))
        loss = functional.cross_entropy(model(tokens[rows]).gather(1, candidates[rows]), senses[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


@torch.no_grad()
def share_right(model: nn.Module, parts: Encoded) -> float:
    """How often the right noun is the likelier of the two."""
    tokens, candidates, senses = parts
    logits = torch.cat([model(some) for some in tokens.split(40)]).gather(1, candidates)
    return (logits.argmax(1) == senses).double().mean().item()


def run(folder: Path) -> dict[str, Any]:
    """The share of right nouns in new documents, as long as those in training and three times as long."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    documents: DocumentCorpus = document_corpus()
    vocab = Vocab(words for one in documents.train for words in one.sentences)
    test, longer = encode(documents.test, vocab), encode(documents.longer, vocab)
    runs = []
    for size in SIZES:
        given = encode(documents.train[:size], vocab)
        for seed in SEEDS:
            for attends in (True, False):
                torch.manual_seed(seed)
                model = train(Reader(len(vocab), attends), given, STEPS, LEARNING_RATE)
                found = {"test": share_right(model, test), "longer": share_right(model, longer)}
                runs.append({"documents": size, "attends": attends, "seed": seed} | found)
                print(rounded(runs[-1]), flush=True)
    training = {"steps": STEPS, "pairs": PAIRS, "learning_rate": LEARNING_RATE, "model_dim": SIZE, "threads": 1}
    return rounded({"training": training, "runs": runs})
