"""Training the Transformer at d2l's sizes: our package's model and step beside d2l's.

Both have a width of 32, feed-forward networks of 64, two layers a stack, 4 heads, post-norm, dropout .1, batches of 64
sentences, Adam at .005, gradients clipped to norm 1, masked cross-entropy in float32, and the same sentences and
vocabularies. Each drops where its own design says: d2l the weights of attention, we the feed-forward networks' hidden
layers. Our matrix of logits is the target's embedding, d2l's is one more.

The questions are those of `bahdanau_training`: how long takes a step on the same padded tensors; an epoch on sentences
that d2l's 10 time steps hold whole; an epoch on all sentences. In the last two each side makes its batches as it does,
and that is counted: d2l pads to a fixed number of steps, we put sentences of like length together.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from attn_book.companion import load_d2l
from attn_book.data import Batch, Batches
from attn_book.train import Precision, target_loss, train_step
from attn_core.transformer import Transformer, TransformerConfig
from benchmarks import d2l_transformer, d2l_translator
from benchmarks.cases import bahdanau_training as training
from benchmarks.cases.bahdanau_training import BATCH_SIZE, NUM_STEPS, Task, Trainer, moved, needed, shifted
from benchmarks.d2l_translator import LEARNING_RATE, Arrays
from benchmarks.measure import Trial

WIDTH, HIDDEN, NUM_HEADS, NUM_LAYERS, DROPOUT = 32, 64, 4, 2, 0.1


def ours(task: Task) -> Trainer:
    """Our model, our step."""
    torch.manual_seed(0)
    config = TransformerConfig(
        len(task.vocabs[1]),
        len(task.vocabs[0]),
        model_dim=WIDTH,
        num_heads=NUM_HEADS,
        num_layers=NUM_LAYERS,
        feed_forward_dim=HIDDEN,
        dropout=DROPOUT,
    )
    model = Transformer(config).to(task.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=task.device.type != "mps")
    precision = Precision(torch.float32, task.device)

    def step(batch: Batch) -> int:
        train_step(model, [batch.to(task.device)], target_loss, optimizer, precision)
        return int(batch.target_lengths.sum())

    def logits(arrays: Arrays) -> Tensor:
        found: Tensor = model(arrays[0], arrays[1], shifted(arrays[2]))
        return found

    runs: Iterator[Iterable[Batch]]
    if task.same_batches:
        runs = training.in_turn(
            [Batch(source, s, shifted(target), target, t) for source, s, target, t in task.batches()]
        )
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
    model = d2l_transformer.translator(
        d2l,
        *map(len, task.vocabs),
        width=WIDTH,
        hidden_dim=HIDDEN,
        num_heads=NUM_HEADS,
        num_layers=NUM_LAYERS,
        dropout=DROPOUT,
    ).to(task.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    loss = d2l.MaskedSoftmaxCELoss()

    def step(arrays: Arrays) -> int:
        d2l_translator.train_step(d2l, model, loss, optimizer, moved(arrays, task.device))
        return int(arrays[3].sum())

    def logits(arrays: Arrays) -> Tensor:
        found: Tensor = model(arrays[0], shifted(arrays[2]), arrays[1])[0]
        return found

    runs: Iterator[Iterable[Arrays]]
    if task.same_batches:
        runs = training.in_turn(task.batches())
    else:
        runs = itertools.repeat(d2l.load_array(task.arrays(task.train), BATCH_SIZE))
    return Trainer(model, runs, step, logits, moved(task.arrays(task.held_out), task.device))


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """The three questions. A run of the last two is an epoch of 50 batches, as many as `Batches` sorts together."""
    size = 16 if quick else 50 * BATCH_SIZE
    train, held_out, vocabs = training.sentences(size)
    longest = max(needed(pair) for pair in train)
    shapes = {"B": BATCH_SIZE, "C": WIDTH, "feed_forward": HIDDEN, "heads": NUM_HEADS, "layers": NUM_LAYERS}
    shapes |= {"source_vocab": len(vocabs[0]), "target_vocab": len(vocabs[1])}
    found = []
    for name, num_steps, same_batches in (
        (f"same batches, cut at {NUM_STEPS} steps", NUM_STEPS, True),
        (f"sentences that fit {NUM_STEPS} steps", NUM_STEPS, False),
        ("all sentences, none cut", longest, False),
    ):
        limit = longest if same_batches else num_steps
        chosen, others = ([p for p in pairs if needed(p) <= limit] for pairs in (train, held_out))
        task = Task(chosen[:size], others, vocabs, num_steps, same_batches, device)
        found.append(
            Trial(
                name,
                shapes | {"steps": num_steps, "sentences": len(task.train)},
                torch.float32,
                ours={"attn_core": functools.partial(ours, task)},
                peers={"d2l": functools.partial(d2ls, task)},
                rounds=100 if same_batches else 10,
                report=training.report,
            )
        )
    return found
