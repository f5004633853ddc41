"""Which positions extrapolate: small language models trained at length 32 and tested at 32, 64 and 128.

Two tasks. Words: the English sentences of the grammar in one stream; the loss of the same held-out words, with 0, 32
and 96 further words before them. Copying: random letters, and at each the letter that stood `BACK` places before;
only positions can tell which that is.
"""

import math
import random
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.corpus import corpus
from attn_core import MultiHeadAttention
from attn_core.data import Vocab
from attn_core.positions import ALiBi, Learned, RelativePositions, Rotary, Sinusoidal
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
KINDS = ("none", "sinusoidal", "learned", "rotary", "ALiBi")
TRAINED = 32
TESTED = (32, 64, 128)
STEPS = {"words": 1500, "copying": 1500}
BATCH_SIZE = 32
LEARNING_RATE = 2e-3
MODEL_DIM, HEADS, LAYERS = 64, 4, 2
LETTERS, BACK = 32, 5
TEST_WINDOWS = 256


class Block(nn.Module):
    """Causal self-attention and a feed-forward network, each behind a normalisation and beside a shortcut."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        inside: dict[str, RelativePositions] = {"rotary": Rotary(MODEL_DIM // HEADS), "ALiBi": ALiBi(HEADS)}
        self.attention = MultiHeadAttention(MODEL_DIM, HEADS, positions=inside.get(kind))
        self.feed_forward = nn.Sequential(
            nn.Linear(MODEL_DIM, 4 * MODEL_DIM), nn.ReLU(), nn.Linear(4 * MODEL_DIM, MODEL_DIM)
        )
        self.first, self.second = nn.LayerNorm(MODEL_DIM), nn.LayerNorm(MODEL_DIM)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, T, C)`` to the same."""
        x = x + self.attention(self.first(x), causal=True)
        return x + self.feed_forward(self.second(x))


class LanguageModel(nn.Module):
    """Predicts from the tokens so far; ``kind`` says how it knows where they stand."""

    def __init__(self, vocab_size: int, kind: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, MODEL_DIM)
        # The learned table has rows for every tested position, but only the first 32 are ever trained.
        added = {"sinusoidal": Sinusoidal(MODEL_DIM), "learned": Learned(max(TESTED), MODEL_DIM)}
        self.positions = added.get(kind, nn.Identity())
        self.blocks = nn.Sequential(*(Block(kind) for _ in range(LAYERS)))
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


def train(model: LanguageModel, task: str, ids: Tensor, seed: int) -> float:
    """Train at length ``TRAINED``; the mean loss of the last 100 steps. The batches depend on the seed alone."""
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    steps, losses = STEPS[task], []
    for step in range(steps):
        if task == "words":
            ends = torch.randint(TRAINED, len(ids) - 1, (BATCH_SIZE,), generator=draw)
            tokens, wanted = cut(ids, ends, TRAINED)
        else:
            tokens, wanted = letters(BATCH_SIZE, TRAINED, draw)
        warm, share = min(1.0, (step + 1) / 100), step / steps
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * warm * 0.5 * (1 + math.cos(math.pi * share))
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-100:]) / 100


@torch.no_grad()
def test_words(model: LanguageModel, ids: Tensor) -> dict[str, Any]:
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
def test_copying(model: LanguageModel) -> dict[str, Any]:
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


def measure(task: str, kind: str, seed: int, words: dict[str, Tensor], vocab: Vocab) -> dict[str, Any]:
    """One model, trained and tested."""
    torch.manual_seed(seed)
    model = LanguageModel(len(vocab) if task == "words" else LETTERS, kind)
    started = time.perf_counter()
    loss = train(model, task, words["train"], seed)
    seconds = time.perf_counter() - started
    model.eval()
    found = test_words(model, words["test"]) if task == "words" else test_copying(model)
    print(f"{task}, {kind}, seed {seed}: {rounded(found)}; {seconds:.0f} s", flush=True)
    return rounded({"task": task, "kind": kind, "seed": seed, "train_loss": loss, "seconds": seconds, "test": found})


def run(folder: Path) -> dict[str, Any]:
    """Every kind on both tasks with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = corpus()
    vocab = Vocab(pair.source for pair in data.train)
    words = {part: stream([p.source for p in getattr(data, part)], vocab, seed=0) for part in ("train", "test")}
    training = {
        "trained_at": TRAINED,
        "tested_at": list(TESTED),
        "steps": STEPS,
        "batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        "model_dim": MODEL_DIM,
        "heads": HEADS,
        "layers": LAYERS,
        "letters": LETTERS,
        "back": BACK,
        "threads": 1,
    }
    runs = [measure(task, kind, seed, words, vocab) for seed in SEEDS for task in STEPS for kind in KINDS]
    return {"training": training, "runs": runs}
