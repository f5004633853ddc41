"""How the loss of next-token prediction falls with the size of the model and with the number of tokens it reads.

Decoders of two layers and four hidden sizes read generated stories once, so no story comes twice. Every hidden size has
the learning rate that was best for it on the validation stories, at the smaller number of stories. The stories come
from a program whose random choices can be counted, and so there is a bound on what any model can reach.
"""

import math
import time
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional

from attn_book.corpus import paragraph_corpus
from attn_book.corpus.grammar import stream
from attn_book.corpus.lexicon import Noun
from attn_book.corpus.paragraphs import STORIES, Paragraph, _tell
from attn_book.data import Vocab
from attn_book.pretrain import StreamBatches, next_token_loss
from attn_book.train import fit
from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel, TransformerConfig
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
WIDTHS = (16, 32, 64, 128)
AMOUNTS = (16_000, 64_000)  # stories
RATES = (0.25, 0.5, 1.0, 2.0)  # learning rates, divided by the hidden size
LAYERS, HEAD_DIM, BATCH_SIZE, LENGTH = 2, 16, 32, 64
VALID, TEST = 500, 2_000


def build(width: int, vocab_size: int, seed: int) -> LanguageModel:
    """A decoder of two layers with heads of 16 entries."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size,
        model_dim=width,
        num_heads=width // HEAD_DIM,
        num_layers=LAYERS,
        feed_forward_dim=4 * width,
        dropout=0.0,
        norm_first=True,
    )
    return LanguageModel(config, positions=lambda: Rotary(HEAD_DIM))


@torch.no_grad()
def mean_loss(model: nn.Module, texts: list[tuple[str, ...]], vocab: Vocab) -> float:
    """The mean loss of every token but <bos>, each story read from its beginning, in nats."""
    total, count = 0.0, 0
    for start in range(0, len(texts), 100):
        rows = [[Vocab.BOS, *vocab.encode(text), Vocab.EOS] for text in texts[start : start + 100]]
        tokens = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, Vocab.PAD)
        logits, wanted = model(tokens[:, :-1]).mT, tokens[:, 1:]
        total += functional.cross_entropy(logits, wanted, ignore_index=Vocab.PAD, reduction="sum").item()
        count += int((wanted != Vocab.PAD).sum())
    return total / count


class Roll(float):
    """A uniform random number that remembers between which bounds the comparisons have placed it."""

    low, high = 0.0, 1.0

    def __lt__(self, other: float) -> bool:
        return self._compare(other, float(self) < other)

    def __gt__(self, other: float) -> bool:
        return not self._compare(other, float(self) <= other)

    def _compare(self, other: float, below: bool) -> bool:
        self.low, self.high = (self.low, min(self.high, other)) if below else (max(self.low, other), self.high)
        return below


class Choices:
    """The random choices that the teller of a story makes, and how improbable they were."""

    def __init__(self, random: Random) -> None:
        self.source = random
        self.begin()

    def begin(self) -> None:
        """Forget the last story."""
        self.rolls: list[Roll] = []
        self.chosen: list[tuple[Any, Any]] = []
        self.nats, self.drawn = 0.0, 0

    def random(self) -> Roll:
        self.rolls.append(Roll(self.source.random()))
        return self.rolls[-1]

    def choice(self, options: Any) -> Any:
        self.chosen.append((self.source.choice(options), options))
        return self.chosen[-1][0]

    def randint(self, low: int, high: int) -> int:
        self.nats += math.log(high - low + 1)
        return self.source.randint(low, high)

    def randrange(self, stop: int) -> int:
        self.nats += math.log(stop)
        return self.source.randrange(stop)

    def sample(self, population: Any, count: int) -> Any:
        self.drawn = count  # the teller draws until the steps fit together, so only the last draw counts
        return self.source.sample(population, count)

    def surprise(self, story: Paragraph) -> float:
        """Minus the logarithm of the probability of all choices that led to the story, in nats.

        Of a noun that the story never names, only what decides about its pronoun is counted.
        """
        (steps,) = [steps for name, _, steps in STORIES if name == story.story]
        tied = [number for number, step in enumerate(steps) if step.tied]
        draws = combinations(range(len(steps)), self.drawn)
        nats = self.nats + math.log(sum(all(i - 1 in draw for i in tied if i in draw) for draw in draws))
        nats -= sum(math.log(roll.high - roll.low) for roll in self.rolls)
        for one, options in self.chosen:
            alike = 1
            if isinstance(one, Noun) and one.english[0] in story.cast and one.english[0] not in story.source:
                alike = sum(_pronoun(other) == _pronoun(one) for other in options)
            nats += math.log(len(options) / alike)
        return nats


def _pronoun(noun: Noun) -> str:
    return noun.gender if "person" in noun.classes else "it"


def entropy_bound(stories: tuple[Paragraph, ...]) -> float:
    """What the choices behind the test stories cost, in nats a token: at least the entropy of the stories.

    Several lists of choices can lead to the same story, which makes the story more probable than any one of them.
    """
    choices, nats = Choices(stream("paragraphs test", 0)), 0.0
    for story in stories:
        told = None
        while told != story:  # a story that has come before is told anew
            choices.begin()
            told = _tell(cast(Random, choices))
        nats += choices.surprise(story)
    return nats / sum(len(story.source) + 1 for story in stories)


def run(folder: Path) -> dict[str, Any]:
    """All sizes, with every learning rate at first and then with every seed, and what no model can pass."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    corpus = paragraph_corpus(train=max(AMOUNTS), valid=VALID, test=TEST)
    vocab = Vocab(story.source for story in corpus.train)
    texts, valid, test = ([story.source for story in part] for part in (corpus.train, corpus.valid, corpus.test))

    def train(width: int, amount: int, rate: float, seed: int) -> dict[str, Any]:
        model = build(width, len(vocab), seed)
        batches = StreamBatches(texts[:amount], vocab, batch_size=BATCH_SIZE, length=LENGTH, seed=seed)
        started = time.process_time()
        fit(model, batches, epochs=1, learning_rate=rate, loss=next_token_loss, seed=seed, progress=False)
        seconds = time.process_time() - started
        lost = {"valid": mean_loss(model, valid, vocab), "test": mean_loss(model, test, vocab)}
        one = {"width": width, "stories": amount, "learning_rate": rate, "seed": seed, **lost, "cpu_seconds": seconds}
        print(rounded(one), flush=True)
        return one

    sizes, sweep, runs = {}, [], []
    for width in WIDTHS:
        model = build(width, len(vocab), 0)
        every = sum(parameter.numel() for parameter in model.parameters())
        sizes[str(width)] = {"all": every, "without_embeddings": every - model.embedding.tokens.weight.numel()}
        tried = [train(width, AMOUNTS[0], rate / width, SEEDS[0]) for rate in RATES]
        best = min(tried, key=lambda one: one["valid"])
        sweep += tried
        runs += [best] + [train(width, AMOUNTS[0], best["learning_rate"], seed) for seed in SEEDS[1:]]
        runs += [train(width, amount, best["learning_rate"], seed) for amount in AMOUNTS[1:] for seed in SEEDS]
    tokens = {str(amount): sum(len(text) + 2 for text in texts[:amount]) for amount in AMOUNTS}
    training = {"layers": LAYERS, "head_dim": HEAD_DIM, "batch_size": BATCH_SIZE, "length": LENGTH, "vocab": len(vocab)}
    return {
        "training": training | {"test_stories": TEST, "threads": 1},
        "parameters": sizes,
        "tokens": tokens,
        "entropy_bound": round(entropy_bound(corpus.test), 4),
        "sweep": rounded(sweep),
        "runs": rounded(runs),
    }
