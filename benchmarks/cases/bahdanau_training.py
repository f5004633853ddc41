"""Training the Bahdanau translator at d2l's sizes: our package's model and step beside d2l's.

Both have embeddings and states of 32, one layer, no dropout, batches of 64 sentences, Adam at .005, gradients clipped
to norm 1, masked cross-entropy in float32, and the same sentences and vocabularies. Our encoder reads one way here, as
d2l's does; our maxout read-out, which d2l has not, is counted on our side. A run returns how many target tokens it
trained on, padding left out, so contenders that return the same may be compared by time.

Three questions: how long takes a step on the same padded tensors; an epoch on sentences that d2l's 10 time steps hold
whole; an epoch on all sentences, where d2l must make room for the longest. In the last two each side makes its batches
as it does, and that is counted: d2l pads to a fixed number of steps, we put sentences of like length together.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.companion import load_d2l
from attn_book.corpus import corpus
from attn_book.data import Batch, Batches, Pair, Vocab
from attn_book.train import Precision, target_loss, train_step
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from benchmarks import d2l_translator
from benchmarks.d2l_translator import Arrays
from benchmarks.measure import Trial

NUM_STEPS, BATCH_SIZE, WIDTH, NUM_LAYERS, DROPOUT = 10, 64, 32, 1, 0.0
STEPS_PER_RUN = 4


class Task(NamedTuple):
    """Sentences to train on, and how: on d2l's padded arrays in a fixed order, or each side with its own loader."""

    train: list[Pair]
    held_out: list[Pair]
    vocabs: tuple[Vocab, Vocab]
    num_steps: int
    same_batches: bool
    device: torch.device

    def arrays(self, pairs: list[Pair]) -> Arrays:
        """Pairs in d2l's form, cut or padded to `num_steps`."""
        return (
            *d2l_translator.padded([p.source for p in pairs], self.vocabs[0], self.num_steps),
            *d2l_translator.padded([p.target for p in pairs], self.vocabs[1], self.num_steps),
        )

    def batches(self) -> list[Arrays]:
        """The training pairs in their order, `BATCH_SIZE` at a time."""
        return list(zip(*(x.split(BATCH_SIZE) for x in self.arrays(self.train)), strict=True))


class Trainer:
    """A model in training: each call goes through the next few batches, and returns their target tokens."""

    def __init__(
        self,
        model: nn.Module,
        runs: Iterator[Iterable[Any]],
        step: Callable[[Any], int],
        logits: Callable[[Arrays], Tensor],
        held_out: Arrays,
    ) -> None:
        self.model = model.train()
        self.runs, self.step, self.logits, self.held_out = runs, step, logits, held_out
        self.steps = self.tokens = self.calls = 0

    def __call__(self) -> int:
        counts = [self.step(batch) for batch in next(self.runs)]
        self.steps += len(counts)
        self.tokens += sum(counts)
        self.calls += 1
        return sum(counts)

    @torch.no_grad()
    def result(self, seconds: list[float]) -> dict[str, float]:
        """The rate, and the loss on sentences not trained on, in nats per target token."""
        self.model.eval()
        scores, target = self.logits(self.held_out), self.held_out[2]
        loss = functional.cross_entropy(scores.flatten(0, 1), target.flatten(), ignore_index=Vocab.PAD)
        return {
            "target_tokens_per_second": round(self.tokens / self.calls * len(seconds) / sum(seconds)),
            "steps": self.steps,
            "held_out_loss": round(float(loss), 3),
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }


def ours(task: Task) -> Trainer:
    """Our model, our step."""
    torch.manual_seed(0)
    sizes = {"embed_dim": WIDTH, "hidden_dim": WIDTH}
    encoder = Encoder(len(task.vocabs[0]), **sizes, num_layers=NUM_LAYERS, bidirectional=False, dropout=DROPOUT)
    decoder = BahdanauDecoder(len(task.vocabs[1]), **sizes, memory_dim=WIDTH, dropout=DROPOUT)
    model = Seq2Seq(encoder, decoder).to(task.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=d2l_translator.LEARNING_RATE, fused=task.device.type != "mps")

    precision = Precision(torch.float32, task.device)

    def step(batch: Batch) -> int:
        train_step(model, [batch.to(task.device)], target_loss, optimizer, precision)
        return int(batch.target_lengths.sum())

    def logits(arrays: Arrays) -> Tensor:
        found: Tensor = model(arrays[0], arrays[1], shifted(arrays[2]))
        return found

    runs: Iterator[Iterable[Batch]]
    if task.same_batches:
        runs = in_turn([Batch(source, s, shifted(target), target, t) for source, s, target, t in task.batches()])
    else:
        batches = Batches(task.train, *task.vocabs, batch_size=BATCH_SIZE, seed=0)
        runs = map(batches.epoch, itertools.count())
    return Trainer(model, runs, step, logits, moved(task.arrays(task.held_out), task.device))


def d2ls(task: Task) -> Trainer:
    """d2l's parts, d2l's step.

    Raises ImportError where d2l is not installed.
    """
    d2l = load_d2l()
    torch.manual_seed(0)
    model = d2l_translator.translator(
        d2l,
        *map(len, task.vocabs),
        embed_dim=WIDTH,
        hidden_dim=WIDTH,
        num_layers=NUM_LAYERS,
        dropout=DROPOUT,
    ).to(task.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=d2l_translator.LEARNING_RATE)
    loss = d2l.MaskedSoftmaxCELoss()

    def step(arrays: Arrays) -> int:
        d2l_translator.train_step(d2l, model, loss, optimizer, moved(arrays, task.device))
        return int(arrays[3].sum())

    def logits(arrays: Arrays) -> Tensor:
        found: Tensor = model(arrays[0], shifted(arrays[2]), arrays[1])[0]
        return found

    runs: Iterator[Iterable[Arrays]]
    if task.same_batches:
        runs = in_turn(task.batches())
    else:
        runs = itertools.repeat(d2l.load_array(task.arrays(task.train), BATCH_SIZE))
    return Trainer(model, runs, step, logits, moved(task.arrays(task.held_out), task.device))


def in_turn(batches: list[Any]) -> Iterator[list[Any]]:
    """A few batches at a time, over and over."""
    endless = itertools.cycle(batches)
    while True:
        yield list(itertools.islice(endless, STEPS_PER_RUN))


def shifted(target: Tensor) -> Tensor:
    """What the decoder reads while it is taught: <bos>, then the target without its last token."""
    return functional.pad(target[:, :-1], (1, 0), value=Vocab.BOS)


def moved(arrays: Arrays, device: torch.device) -> Arrays:
    """The same arrays on a device."""
    source, source_lengths, target, target_lengths = (x.to(device) for x in arrays)
    return source, source_lengths, target, target_lengths


def report(works: Mapping[str, Any], seconds: Mapping[str, list[float]]) -> dict[str, Any]:
    """Rate, steps, loss and size of each contender."""
    return {name: work.result(seconds[name]) for name, work in works.items()}


@functools.cache
def sentences(size: int) -> tuple[list[Pair], list[Pair], tuple[Vocab, Vocab]]:
    """Pairs of our grammar to train on, others held out, and the vocabularies of the first."""
    data = corpus(train=3 * size, valid=min(size, 512), test=0, structures=0, pronouns=0)
    vocabs = (Vocab(p.source for p in data.train), Vocab(p.target for p in data.train))
    return list(data.train), list(data.valid), vocabs


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """The three questions. A run of the last two is an epoch of 50 batches, as many as `Batches` sorts together."""
    size = 16 if quick else 50 * BATCH_SIZE
    train, held_out, vocabs = sentences(size)
    longest = max(needed(pair) for pair in train)
    found = []
    for name, num_steps, same_batches in (
        (f"same batches, cut at {NUM_STEPS} steps", NUM_STEPS, True),
        (f"sentences that fit {NUM_STEPS} steps", NUM_STEPS, False),
        ("all sentences, none cut", longest, False),
    ):
        limit = longest if same_batches else num_steps
        chosen, others = ([p for p in pairs if needed(p) <= limit] for pairs in (train, held_out))
        task = Task(chosen[:size], others, vocabs, num_steps, same_batches, device)
        shapes = {"B": BATCH_SIZE, "steps": num_steps, "C": WIDTH, "layers": NUM_LAYERS, "sentences": len(task.train)}
        found.append(
            Trial(
                name,
                shapes | {"source_vocab": len(vocabs[0]), "target_vocab": len(vocabs[1])},
                torch.float32,
                ours={"attn_core": functools.partial(ours, task)},
                peers={"d2l": functools.partial(d2ls, task)},
                rounds=100 if same_batches else 10,
                report=report,
            )
        )
    return found


def needed(pair: Pair) -> int:
    """The time steps that hold both sides of a pair, <eos> counted."""
    return max(len(pair.source), len(pair.target)) + 1
