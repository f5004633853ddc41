"""Runs that are stopped, go on, and end as if nothing had been; test_checkpoint.py stops the writing of a file."""

import math
import random
from itertools import count

import pytest
import torch
from torch import nn

from attn_book.corpus import corpus
from attn_book.data import Batches, Vocab
from attn_book.train import fit, target_loss
from attn_book.train.checkpoint import load
from attn_core.seq2seq import Encoder, FixedContextDecoder, Seq2Seq

pairs = [p for p in corpus(train=400, valid=0, test=0, structures=0, pronouns=0).train if len(p.target) <= 7][:90]
source, target = Vocab(p.source for p in pairs), Vocab(p.target for p in pairs)


def batches(pairs=pairs, size=6, seed=0):
    return Batches(pairs, source, target, batch_size=size, seed=seed)


def model(seed=0):
    torch.manual_seed(seed)
    encoder = Encoder(len(source), embed_dim=8, hidden_dim=8, dropout=0.3)
    return Seq2Seq(encoder, FixedContextDecoder(len(target), embed_dim=8, hidden_dim=8, memory_dim=16, dropout=0.3))


class Tied(nn.Module):
    """One tensor under two names, laid out in memory the other way round; a buffer; a parameter that is never used."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(len(target), 6)
        self.embedding.weight = nn.Parameter(torch.randn(6, len(target)).T)
        self.dropout = nn.Dropout(0.3)
        self.output = nn.Linear(6, len(target), bias=False)
        self.output.weight = self.embedding.weight
        self.unused = nn.Parameter(torch.randn(2))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, source, lengths, target):
        self.calls += 1
        return self.output(self.dropout(self.embedding(target)) * (1 + 0.1 * self.calls))


def run(net, path=None, **options):
    """Eight epochs of 15 steps, with validations that draw random numbers."""
    settings = {"epochs": 8, "device": "cpu", "checkpoint": path, "checkpoint_every": 3, "progress": False}
    validation = {"validate": lambda _: {"draw": torch.rand(()).item()}, "validate_every": 7}
    return fit(net, **({"batches": batches()} | settings | validation | options))


class StoppedError(Exception):
    """What ends a run in the middle, as a kill would."""


def stopping_after(steps):
    calls = count()

    def loss(net, batch):
        if next(calls) == steps:
            raise StoppedError
        return target_loss(net, batch)

    return loss


def stopped_run(net, path, steps, **options):
    with pytest.raises(StoppedError):
        run(net, path, loss=stopping_after(steps), **options)


def assert_same(net, history, other_net, other_history):
    weights, others = net.state_dict(), other_net.state_dict()
    assert weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)
    assert history.losses == other_history.losses
    assert drawn(history) == drawn(other_history)


def drawn(history):
    return [(record["step"], record["draw"]) for record in history.validation]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("make", "every", "steps", "kept"),
    [
        (model, None, 5, 0),  # not one epoch done: from the start
        (model, None, 31, 30),  # at the end of an epoch
        (model, 4, 39, 36),  # amid an epoch
        (model, 7, 21, 21),  # at a validation
        (Tied, 4, 39, 36),
    ],
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(tmp_path, make, every, steps, kept, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    options = {"epochs": 4, "device": device, "checkpoint_every": every}
    path = tmp_path / "run.safetensors"
    never, resumed, finished = make(0), make(1), make(2).eval()
    expected = run(never, **options)
    stopped_run(make(0), path, steps, **options)
    assert len(load(path).tensors["losses"]) == kept
    assert_same(resumed, run(resumed, str(path), **options), never, expected)
    assert_same(finished, run(finished, path, loss=stopping_after(0), **options), never, expected)
    assert not finished.training


def test_a_run_with_accumulation_goes_on_at_its_batch_in_the_middle_of_an_epoch(tmp_path):
    """Fifteen batches are eight steps, and the file holds nine: the second epoch goes on after its second batch."""
    path, options = tmp_path / "run.safetensors", {"epochs": 3, "accumulate": 2}
    never, resumed = model(0), model(1)
    expected = run(never, **options)
    stopped_run(model(0), path, 20, **options)
    assert len(load(path).tensors["losses"]) == 9
    assert_same(resumed, run(resumed, path, **options), never, expected)


SHUFFLED = random.Random(0).sample(pairs, len(pairs))
OTHERS = [
    ({"epochs": 2}, "epochs: expected 8, got 2"),
    ({"learning_rate": 1e-2}, "learning_rate: expected 0.003, got 0.01"),
    ({"precision": torch.bfloat16}, "precision: expected None, got torch.bfloat16"),
    ({"validate": None}, "validate_every: expected 7, got None"),
    ({"batches": batches(seed=1)}, "batches' seed: expected 0, got 1; .*"),
    ({"batches": batches(pairs[:89])}, r"batches' checksum: expected \d+, got \d+"),
    ({"batches": batches(SHUFFLED)}, r"batches' checksum: expected \d+, got \d+"),
    ({"model": model().double()}, r"model's encoder.embedding.weight: expected torch.float32 .*; and \d+ more"),
    ({"model": Tied()}, "model's trained parameters: .*encoder.embedding.weight: expected .*, got nothing; .*"),
]


@pytest.mark.parametrize(("change", "message"), OTHERS, ids=[message.split(":")[0] for _, message in OTHERS])
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change, message):
    path = tmp_path / "run.safetensors"
    stopped_run(model(), path, 4)
    whole = path.read_bytes()
    net = change.get("model", model())
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(ValueError, match=rf"checkpoint: .*run\.safetensors is of another run; {message}$"):
        run(net, path, **{name: value for name, value in change.items() if name != "model"})
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert path.read_bytes() == whole


def test_a_checkpoint_that_cannot_be_used_changes_nothing(tmp_path):
    path = tmp_path / "run.safetensors"
    stopped_run(model(), path, 4)
    path.write_bytes(path.read_bytes()[:-1])
    net = model()
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(ValueError, match=r"checkpoint: expected a whole checkpoint, got .*run\.safetensors"):
        run(net, path)
    with pytest.raises(OSError, match=tmp_path.name):
        run(net, tmp_path)
    with pytest.raises(OSError, match="missing"):  # at once, not after an epoch
        run(net, tmp_path / "missing" / "run.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_a_broken_loss_leaves_the_last_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"
    stopped_run(model(), path, 7)
    whole, calls = path.read_bytes(), count()

    def broken(net, batch):
        loss, count = target_loss(net, batch)
        return loss * (math.nan if next(calls) == 2 else 1.0), count

    with pytest.raises(FloatingPointError, match="the loss became nan at step 9"):
        run(model(), path, loss=broken)
    assert path.read_bytes() == whole and list(tmp_path.iterdir()) == [path]
