"""Words that need their paragraph: does a context blended into queries and keys help?

Which of its two French nouns does an ambiguous English word mean? A linear layer reads it off the encoder's vector at
the word; the paragraph's sentence that tells it is one to five sentences away. All models attend to the whole
paragraph. Compared are plain attention, its feed-forward network widened so that it has the parameters of the largest
other model, and attention with each form of context.

The hierarchy is told where sentences end, so there are controls: one more plain model, whose first layer sees a
sentence and whose others see the paragraph, and for it and the hierarchy a copy that is told cuts at random places
instead, as many as there are sentences.

The twins of the kinds "negated" and "bound" have the same words in all: see ``attn_book.corpus.ambiguous``.
"""

import functools
import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.context import GlobalContext, HierarchicalContext
from attn_book.context.encoder import ContextEncoder
from attn_book.corpus import KINDS, SENSES, AmbiguousWord, ambiguous_words
from attn_book.data import Vocab
from attn_book.train.schedules import cosine
from attn_core import masks
from attn_core.transformer import TransformerConfig, TransformerEncoder
from recorded.bahdanau import rounded

SEEDS = (0, 1, 2)
WORDS = ("bank", "lock", "seal", "bat", "coach", "plant", "bow", "organ")
TRAIN, TEST = 12_000, 1_200
BOUND = 0.8
"""The share of training examples that are bound; the other kinds have half of the rest each.

With equal shares, plain attention that is told the sentences did not learn the bound kind in the 1,000 steps that we
tried: the others are learned early, and after that the loss changes little.
"""
STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 32, 4e-3
POINTS = 10  # how often a model is tested while it learns
MODEL_DIM, HEADS, LAYERS, FEED_FORWARD_DIM = 32, 4, 2, 64
PROCESSES = 1  # set to the number of idle cores

FORMS: dict[str, Callable[[int], nn.Module] | None] = {
    "plain": None,
    "global": GlobalContext,
    "hierarchical": HierarchicalContext,
}
MODELS = (
    ("plain", "nothing"),
    ("plain", "sentences"),
    ("plain", "random cuts"),
    ("global", "nothing"),
    ("hierarchical", "sentences"),
    ("hierarchical", "random cuts"),
)
"""Forms of context, and what they are told. Plain attention that is told something has a first layer confined to it."""


class Batch(NamedTuple):
    """Examples side by side: words, how many, their sentences, pieces cut at random; the word's place and candidates.

    Last, what no model is told: the sense.
    """

    tokens: Tensor
    lengths: Tensor
    sentences: Tensor
    pieces: Tensor
    positions: Tensor
    candidates: Tensor
    senses: Tensor

    def at(self, rows: Tensor) -> "Batch":
        """These examples, the padding cut that none of them needs."""
        chosen = Batch(*(x[rows] for x in self))
        longest = int(chosen.lengths.max())
        cut = {name: getattr(chosen, name)[:, :longest] for name in ("tokens", "sentences", "pieces")}
        return chosen._replace(**cut)


def cut(examples: tuple[AmbiguousWord, ...]) -> list[Tensor]:
    """For each word the number of its piece: as many pieces as sentences, cut at random places, the same for twins."""
    draw, found = torch.Generator().manual_seed(0), []
    for one in examples[::2]:
        length, count = len(one.paragraph.source), len(one.paragraph.sentences)
        starts = torch.zeros(length, dtype=torch.long)
        starts[1 + torch.randperm(length - 1, generator=draw)[: count - 1]] = 1
        found += [starts.cumsum(0)] * 2
    return found


def encode(examples: tuple[AmbiguousWord, ...], vocab: Vocab) -> Batch:
    """All examples as one batch; a noun's number is its place in `SENSES`."""
    numbers = {sense.noun: number for number, sense in enumerate(sense for pair in SENSES.values() for sense in pair)}
    pad = functools.partial(nn.utils.rnn.pad_sequence, batch_first=True)
    return Batch(
        pad([torch.tensor(vocab.encode(e.paragraph.source)) for e in examples]),
        torch.tensor([len(e.paragraph.source) for e in examples]),
        pad([torch.tensor(e.paragraph.sentence_numbers) for e in examples]),
        pad(cut(examples)),
        torch.tensor([e.position for e in examples]),
        torch.tensor([[numbers[sense.noun] for sense in SENSES[e.word]] for e in examples]),
        torch.tensor([e.sense for e in examples]),
    )


class Reader(nn.Module):
    """An encoder, and which of its two nouns the word in question means."""

    def __init__(self, form: str, told: str, vocab_size: int, feed_forward_dim: int = FEED_FORWARD_DIM) -> None:
        super().__init__()
        config = TransformerConfig(
            vocab_size,
            model_dim=MODEL_DIM,
            num_heads=HEADS,
            num_layers=LAYERS,
            feed_forward_dim=feed_forward_dim,
            dropout=0.0,
            norm_first=True,
        )
        make, self.told = FORMS[form], told
        self.encoder = TransformerEncoder(config) if make is None else ContextEncoder(config, make)
        self.nouns = nn.Linear(MODEL_DIM, 2 * len(SENSES))

    def forward(self, batch: Batch) -> Tensor:
        """Logits ``(B, 2)`` of the two senses."""
        tokens, lengths = batch.tokens, batch.lengths
        groups = batch.pieces if self.told == "random cuts" else batch.sentences
        if isinstance(self.encoder, ContextEncoder):
            x = self.encoder(tokens, lengths, groups)
        else:
            words = masks.padding(lengths, tokens.shape[1])
            near = words & masks.same_group(groups)
            x = self.encoder.embedding(tokens)
            for number, layer in enumerate(self.encoder.stack.layers):
                x = layer(x, mask=near if number == 0 and self.told != "nothing" else words)
            x = self.encoder.stack.norm(x)
        return self.nouns(x[torch.arange(len(x)), batch.positions]).gather(1, batch.candidates)


def parameters(model: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(p.numel() for p in model.parameters())


def feed_forward_dim(form: str, vocab_size: int) -> int:
    """The hidden size of plain attention's feed-forward networks that brings it to the largest model's parameters."""
    if form != "plain":
        return FEED_FORWARD_DIM
    largest = max(parameters(Reader(each, "nothing", vocab_size)) for each in FORMS)
    short = largest - parameters(Reader(form, "nothing", vocab_size))
    return FEED_FORWARD_DIM + round(short / (LAYERS * (2 * MODEL_DIM + 1)))


@functools.cache
def corpus() -> tuple[Batch, Batch, int]:
    """Training and test examples, and the size of the vocabulary; the test's kinds come in turn, twins together."""
    examples = ambiguous_words(train=TRAIN, valid=0, test=TEST, words=WORDS)
    vocab = Vocab([example.paragraph.source for example in examples.train])
    return encode(examples.train, vocab), encode(examples.test, vocab), len(vocab)


def build(form: str, told: str, seed: int) -> Reader:
    """An untrained model."""
    vocab_size = corpus()[2]
    width = feed_forward_dim(form, vocab_size)
    torch.manual_seed(seed)
    return Reader(form, told, vocab_size, width)


def batches(seed: int) -> Iterator[Batch]:
    """Batches without end, the same for all models of a seed; twins side by side.

    Apart, twins pull a model that has read a word's own sentence alone now to one sense and now to the other, and all
    models learn late or, with some seeds, not at all in the same time. Side by side these pulls cancel.
    """
    train, draw = corpus()[0], torch.Generator().manual_seed(seed)
    is_bound = torch.arange(TRAIN // 2) % len(KINDS) == KINDS.index("bound")
    shares = torch.where(is_bound, BOUND, (1 - BOUND) / 2)
    while True:
        twins = torch.multinomial(shares, BATCH_SIZE // 2, replacement=True, generator=draw)
        yield train.at(torch.stack((2 * twins, 2 * twins + 1), 1).flatten())


def step(model: Reader, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """One step of training; the loss in nats."""
    loss = functional.cross_entropy(model(batch), batch.senses)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


@torch.no_grad()
def test(model: Reader) -> dict[str, float]:
    """The share of test examples whose sense is found, by kind and of all."""
    examples = corpus()[1]
    rows = torch.arange(TEST).split(200)
    right = torch.cat([model(examples.at(each)).argmax(1) == examples.senses[each] for each in rows]).float()
    kinds = torch.arange(TEST) // 2 % len(KINDS)
    return {kind: right[kinds == number].mean().item() for number, kind in enumerate(KINDS)} | {
        "all": right.mean().item()
    }


def measure(form: str, told: str, seed: int) -> dict[str, Any]:
    """One model, trained, and tested at equal distances on the way."""
    model = build(form, told, seed)
    optimizer, rate = torch.optim.Adam(model.parameters()), cosine(STEPS, peak=LEARNING_RATE)
    losses, curve, given = [], [], batches(seed)
    started = time.process_time()
    for number in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = rate(number - 1)
        losses.append(step(model, optimizer, next(given)))
        if number % (STEPS // POINTS) == 0:
            curve.append({"step": number, "loss": statistics.fmean(losses[-(STEPS // POINTS) :])} | test(model))
    seconds = time.process_time() - started
    print(f"{form}, {told}, seed {seed}: {rounded(curve[-1])}; {seconds:.0f} s", flush=True)
    return rounded({"form": form, "told": told, "seed": seed, "curve": curve})


def run(folder: Path) -> dict[str, Any]:
    """Every form of context and none, and the controls, with every seed."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    training: dict[str, Any] = {"steps": STEPS, "batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE}
    training |= {"train": TRAIN, "test": TEST, "words": WORDS, "bound": BOUND, "threads": 1}
    sizes = {"model_dim": MODEL_DIM, "heads": HEADS, "layers": LAYERS}
    vocab_size = corpus()[2]
    models = [
        {"form": form, "parameters": parameters(build(form, "nothing", 0)), "feed_forward_dim": width}
        for form, width in ((form, feed_forward_dim(form, vocab_size)) for form in FORMS)
    ]
    print(models, flush=True)
    jobs = [(*each, seed) for seed in SEEDS for each in MODELS]
    importable = importlib.import_module("recorded.context").measure  # run.py loads this file under another name
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        runs = list(pool.map(importable, *zip(*jobs, strict=True)))
    return {"training": training | sizes, "chance": 0.5, "models": models, "runs": runs}
