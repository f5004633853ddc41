"""Two real processes on the CPU, beside one: the same losses, whoever begins a run and whoever ends it.

Run by ``torchrun``, this file is one of the processes.
"""

import json
import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import distributed as torch_distributed

from attn_book.corpus import corpus
from attn_book.data import Batches, Vocab
from attn_book.data.vocab import PretrainingVocab
from attn_book.pretrain import (
    Classifier,
    LabelledBatches,
    MaskedBatches,
    MaskedLanguageModel,
    Text,
    class_loss,
    masked_loss,
)
from attn_book.train import distributed, fit, resume, target_loss
from attn_book.train.checkpoint import load
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.transformer import SegmentEncoder, Transformer, TransformerConfig

pytestmark = pytest.mark.skipif(not torch_distributed.is_available(), reason="needs torch.distributed")

pairs = corpus(train=13, valid=0, test=0, structures=0, pronouns=0).train  # of four together, the last one is alone
vocabs = Vocab(p.source for p in pairs), Vocab(p.target for p in pairs)
words = PretrainingVocab(p.source for p in pairs)
texts = [Text(p.source, label=number % 2) for number, p in enumerate(pairs)]
CASES = {
    "plain": {},
    "accumulate": {"accumulate": 2},
    "accumulate all": {"accumulate": 3},
    "bahdanau": {},
    "classes": {"batches": LabelledBatches(texts, words, batch_size=4, seed=0), "loss": class_loss, "accumulate": 3},
    "masked": {
        "batches": MaskedBatches(lambda number: texts, words, batch_size=4, seed=0),
        "loss": masked_loss,
        "accumulate": 2,
    },
}


def model(name, seed=0):
    torch.manual_seed(seed)
    source, target = map(len, vocabs)
    if name == "bahdanau":
        decoder = BahdanauDecoder(target, embed_dim=8, hidden_dim=8, memory_dim=16)
        return Seq2Seq(Encoder(source, embed_dim=8, hidden_dim=8), decoder)
    sizes = {"model_dim": 16, "num_heads": 2, "num_layers": 1, "feed_forward_dim": 16, "dropout": 0.0}
    if name in ("classes", "masked"):
        encoder = SegmentEncoder(TransformerConfig(len(words), **sizes))
        return Classifier(encoder, 2) if name == "classes" else MaskedLanguageModel(encoder)
    return Transformer(TransformerConfig(target, source, **sizes))


def norm(net):
    """The gradient's: Adam hardly sees a constant factor on it, so that the losses hardly would."""
    return {"norm": torch.stack([p.grad.norm() for p in net.parameters()]).norm().item()}


def run(name="plain", *, seed=0, **options):
    """Five epochs; a gradient that is never clipped, and its norm after every step."""
    settings = {"epochs": 5, "learning_rate": 1e-2, "clip": 1e9, "device": "cpu", "progress": False}
    settings |= {"batches": Batches(pairs, *vocabs, batch_size=4, seed=0), "validate": norm, "validate_every": 1}
    return fit(model(name, seed), **(settings | CASES[name] | options))


def found(history):
    return {"losses": history.losses, "norms": [record["norm"] for record in history.validation]}


def assert_same(one, two):
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-4)
    assert two["norms"] == pytest.approx(one["norms"], rel=1e-3)


class StoppedError(Exception):
    """What ends a run in the middle."""


def stopping_after(calls):
    numbers = count()

    def loss(net, batch):
        if next(numbers) == calls:
            raise StoppedError
        return target_loss(net, batch)

    return loss


def launch(*words):
    """What two processes come to."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


def test_two_processes_train_as_one_does(tmp_path):
    expected = {name: found(run(name)) for name in CASES}
    for name, steps in (("begun", 0), ("half", 10)):  # by one process; the two go on
        with pytest.raises(StoppedError):
            run(loss=stopping_after(steps), checkpoint=tmp_path / name, checkpoint_every=2)
        assert len(load(tmp_path / name).tensors["losses"]) == steps
    (tmp_path / "damaged").write_bytes(b"no checkpoint")
    launched = launch(__file__, "all", str(tmp_path))
    assert launched.returncode == 0, launched.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    for name in CASES:
        assert_same(expected[name], first[name])
    for name in ("begun", "half"):
        assert_same(expected["plain"], first[name])
    assert all(first[name] == second[name] for name in (*CASES, "begun", "half", "weights", "refused"))
    assert re.match("ValueError: checkpoint: expected a whole checkpoint", first["refused"])
    assert first["saved"] == 15 and second["saved"] == 0, "every two steps, of twenty and of the ten left"
    draws = list(zip(first["draws"], second["draws"], strict=True))
    assert len(draws) == 2 and all(one != two for one, two in draws), "each process has dropout of its own"
    assert draws[0][1] != draws[1][1], "and another one when a run goes on later"


def test_a_process_that_fails_ends_both_and_one_goes_on(tmp_path):
    launched = launch(__file__, "stop", str(tmp_path))
    assert launched.returncode != 0 and "StoppedError" in launched.stderr
    assert len(load(tmp_path / "stopped").tensors["losses"]) == 12
    assert_same(found(run()), found(run(seed=1, checkpoint=tmp_path / "stopped", checkpoint_every=4)))


def process(task, folder):
    """One of two processes."""
    if task == "stop":
        alone = stopping_after(13) if distributed.rank() == 1 else target_loss
        run(loss=alone, checkpoint=folder / "stopped", checkpoint_every=4)
        return
    draws, saves, weights = [], [], []
    save = resume.save
    resume.save = lambda *arguments: saves.append(save(*arguments))

    def draw(net, batch):
        if not drawn:
            drawn.append(torch.rand(()).item())
        weights.append(sum(p.double().sum().item() for p in net.parameters()))
        return target_loss(net, batch)

    result = {name: found(run(name, seed=distributed.rank())) for name in CASES}
    for name in ("begun", "half"):
        drawn = []
        result[name] = found(run(seed=1, loss=draw, checkpoint=folder / name, checkpoint_every=2))
        draws += drawn
    try:
        run(checkpoint=folder / "damaged")
    except ValueError as error:
        result["refused"] = f"ValueError: {error}"
    result |= {"draws": draws, "saved": len(saves), "weights": weights}
    (folder / f"{distributed.rank()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    with distributed.process_group():
        process(sys.argv[1], Path(sys.argv[2]))
