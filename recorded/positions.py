"""Which positions extrapolate: small language models trained at length 32 and tested at 32, 64 and 128.

Two tasks. Words: the English sentences of the grammar in one stream; the loss of the same held-out words, with 0, 32
and 96 further words before them. Copying: random letters, and at each the letter that stood `BACK` positions before;
only positions can tell which that is.

Each kind of positions is trained at several learning rates with the first seed, and with the other seeds at the rate
with the lowest validation loss at length 32; longer windows have no part in that choice.
"""

import math
import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.corpus import corpus
from attn_book.data import Vocab
from attn_core import MultiHeadAttention
from attn_core.positions import ALiBi, Learned, RelativePositions, Rotary, Sinusoidal
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
KINDS = ("none", "sinusoidal", "learned", "T5", "rotary", "ALiBi")
TRAINED = 32
TESTED = (32, 64, 128)
TASKS = ("words", "copying")
STEPS = 600
BATCH_SIZE = 32
RATES = (3e-3, 1e-2, 3e-2)
MODEL_DIM, HEADS, LAYERS = 64, 4, 2
LETTERS, BACK = 32, 5
TEST_WINDOWS = 128

Parts = dict[str, Tensor]


class Buckets(RelativePositions):
    """T5's relative positions: a learned bias for each head and bucket of distances, the same in all layers.

    Distances below half the number of buckets have one each; the others share theirs, and all from ``TRAINED`` on
    share the last. Keys after the query, which the causal mask hides, are in the first.
    """

    COUNT = 16

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(self.COUNT, HEADS))

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """The bias ``(H, T, S)``."""
        distance = (query_positions[:, None] - key_positions).clamp(min=0)
        near = self.COUNT // 2
        share = (distance.clamp(min=1) / near).log() / math.log(TRAINED / near)
        far = near + (share * (self.COUNT - near)).long()
        return self.table[torch.where(distance < near, distance, far.clamp(max=self.COUNT - 1))].permute(2, 0, 1)


class Block(nn.Module):
    """Causal self-attention and a feed-forward network, each after a normalisation and with a residual connection."""

    def __init__(self, positions: RelativePositions | None) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(MODEL_DIM, HEADS, positions=positions)
        self.feed_forward = nn.Sequential(
            nn.Linear(MODEL_DIM, 4 * MODEL_DIM), nn.ReLU(), nn.Linear(4 * MODEL_DIM, MODEL_DIM)
        )
        self.first, self.second = nn.LayerNorm(MODEL_DIM), nn.LayerNorm(MODEL_DIM)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, T, C)`` to the same."""
        x = x + self.attention(self.first(x), causal=True)
        return x + self.feed_forward(self.second(x))


class PlacedModel(nn.Module):
    """Predicts from the tokens so far; ``kind`` says how it knows where they stand."""

    def __init__(self, vocab_size: int, kind: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, MODEL_DIM)
        # The learned table has rows for every tested position, but only the first 32 are ever trained.
        added = {"sinusoidal": Sinusoidal(MODEL_DIM), "learned": Learned(max(TESTED), MODEL_DIM)}
        self.positions = added.get(kind, nn.Identity())
        inside: dict[str, RelativePositions] = {
            "T5": Buckets(),
            "rotary": Rotary(MODEL_DIM // HEADS),
            "ALiBi": ALiBi(HEADS),
        }
        self.blocks = nn.Sequential(*(Block(inside.get(kind)) for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(MODEL_DIM)
        self.logits = nn.Linear(MODEL_DIM, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(B, T, V)`` for ``tokens (B, T)``."""
        return self.logits(self.norm(self.blocks(self.positions(self.embedding(tokens)))))


def stream(sentences: list[list[str]], vocab: Vocab, seed: int) -> Tensor:
    """The sentences in random order, each followed by <eos>, as one row of token ids."""
    order = sentences.copy()
    random.Random(seed).shuffle(order)
    return torch.tensor([token for words in order for token in (*vocab.encode(words), Vocab.EOS)])


def cut(ids: Tensor, ends: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Windows of ``length`` tokens that end before ``ends``, and the tokens that come after each of theirs."""
    places = ends[:, None] - length + torch.arange(length)
    return ids[places], ids[places + 1]


def letters(rows: int, length: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random letters, and for each the one ``BACK`` places before it; −100, which counts for nothing, at the start."""
    tokens = torch.randint(LETTERS, (rows, length), generator=draw)
    return tokens, functional.pad(tokens[:, :-BACK], (BACK, 0), value=-100)


def parts() -> tuple[Parts, Vocab]:
    """The English sentences of each part of the corpus as one stream, and their vocabulary."""
    data = corpus()
    vocab = Vocab(pair.source for pair in data.train)
    return {p: stream([x.source for x in getattr(data, p)], vocab, seed=0) for p in ("train", "valid", "test")}, vocab


def windows(task: str, ids: Tensor, rows: int, length: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Windows drawn at random, and what is to be predicted at each of their tokens."""
    if task == "copying":
        return letters(rows, length, draw)
    return cut(ids, torch.randint(length, len(ids) - 1, (rows,), generator=draw), length)


def train(
    model: PlacedModel, task: str, ids: Tensor, seed: int, rate: float, steps: int = STEPS, length: int = TRAINED
) -> float:
    """Train on windows of ``length``, as many tokens a step at any length; the mean loss of the last 100 steps.

    The windows depend on the seed alone.
    """
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    losses = []
    for step in range(steps):
        tokens, wanted = windows(task, ids, BATCH_SIZE * TRAINED // length, length, draw)
        warm, share = min(1.0, 10 * (step + 1) / steps), step / steps
        optimizer.param_groups[0]["lr"] = rate * warm * 0.5 * (1 + math.cos(math.pi * share))
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-100:]) / len(losses[-100:])


@torch.no_grad()
def validate(model: PlacedModel, task: str, ids: Tensor, length: int) -> float:
    """The loss on validation windows of ``length``."""
    tokens, wanted = windows(task, ids, TEST_WINDOWS, length, torch.Generator().manual_seed(4321))
    return functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten()).item()


@torch.no_grad()
def test_words(model: PlacedModel, ids: Tensor) -> dict[str, Any]:
    """Nats per word over the last 32 words of windows, by window length; and by place in the longest windows."""
    longest = max(TESTED)
    ends = torch.linspace(longest, len(ids) - 2, TEST_WINDOWS).long()
    found: dict[str, Any] = {}
    for length in TESTED:
        tokens, wanted = cut(ids, ends, length)
        losses = functional.cross_entropy(model(tokens).transpose(1, 2), wanted, reduction="none")
        found[str(length)] = losses[:, -TRAINED:].mean().item()
    found["by_place"] = losses.mean(0).view(-1, 8).mean(1).tolist()
    return found


@torch.no_grad()
def test_copying(model: PlacedModel) -> dict[str, Any]:
    """The share of letters copied rightly among the last 32 of sequences, by length; and by place in the longest."""
    draw = torch.Generator().manual_seed(1234)
    found: dict[str, Any] = {}
    for length in TESTED:
        tokens, wanted = letters(TEST_WINDOWS, length, draw)
        right = (model(tokens).argmax(-1) == wanted).float()
        counted = right[:, max(BACK, length - TRAINED) :]
        found[str(length)] = counted.mean().item()
    found["by_place"] = right.mean(0).view(-1, 8)[1:].mean(1).tolist()
    return found


def test(model: PlacedModel, task: str, words: Parts) -> dict[str, Any]:
    """What is reported of a model."""
    return test_words(model, words["test"]) if task == "words" else test_copying(model)


def fit(task: str, kind: str, seed: int, rate: float, words: Parts, vocab: Vocab) -> tuple[PlacedModel, float]:
    """A trained model, and its validation loss."""
    torch.manual_seed(seed)
    model = PlacedModel(len(vocab) if task == "words" else LETTERS, kind)
    train(model, task, words["train"], seed, rate)
    return model, validate(model, task, words["valid"], TRAINED)


def run(folder: Path) -> dict[str, Any]:
    """Every kind on both tasks: the rates with the first seed, then all seeds at the best."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    words, vocab = parts()
    training = {
        "trained_at": TRAINED,
        "tested_at": list(TESTED),
        "steps": STEPS,
        "batch_size": BATCH_SIZE,
        "rates": list(RATES),
        "model_dim": MODEL_DIM,
        "heads": HEADS,
        "layers": LAYERS,
        "letters": LETTERS,
        "back": BACK,
        "threads": 1,
    }
    swept, runs = [], []
    for task in TASKS:
        for kind in KINDS:
            tried = {rate: fit(task, kind, SEEDS[0], rate, words, vocab) for rate in RATES}
            losses = {rate: loss for rate, (_, loss) in tried.items()}
            best = min(losses, key=losses.__getitem__)
            swept += [{"task": task, "kind": kind, "rate": rate, "valid": loss} for rate, loss in losses.items()]
            for seed in SEEDS:
                model, loss = tried[best] if seed == SEEDS[0] else fit(task, kind, seed, best, words, vocab)
                found = test(model, task, words)
                runs.append({"task": task, "kind": kind, "seed": seed, "rate": best, "valid": loss, "test": found})
            print(rounded([swept[-len(RATES) :], [r["test"] for r in runs[-len(SEEDS) :]]]), flush=True)
    return rounded({"training": training, "swept": swept, "runs": runs})
