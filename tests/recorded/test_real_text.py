"""The recorded run on real sentences: its vocabulary, its baselines, and a tiny run."""

import json

import torch

from attn_core.pretrain import PretrainingVocab
from recorded import real_text, transfer

TINY = transfer.Plan(60, 150, 40, 1, 1, {10: 1, 30: 1})
READ = [tuple(text.split()) for text in ("it is a cat .", "it is a dog .", "it was a cat .")] * 12


def test_what_counting_restores():
    vocab = PretrainingVocab(READ)
    found = real_text.between_neighbours([*READ, ("a",)], [("it", "is", "a", "horse", ".")], vocab)
    assert found["most frequent"] == 0.25  # "a", one of the four that are known
    assert found["between neighbours"] == 0.75  # all but the full stop, whose left neighbour is unknown
    assert len(vocab) == len(PretrainingVocab.SPECIALS) + 7


def test_a_tiny_run(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "FROZEN_STEPS", 3)
    monkeypatch.setattr(real_text, "HELD", 6)
    monkeypatch.setattr(real_text, "sentences", lambda: READ)
    threads = torch.get_num_threads()
    found = real_text.run(tmp_path, TINY, (0,))
    torch.set_num_threads(threads)
    json.dumps(found, allow_nan=False)
    assert found["corpus"]["sentences"] == 30
    (run,) = found["runs"]
    assert {t["task"] for t in run["tuning"]} == {"sense", "order"} and len(run["curve"]) == real_text.EPOCHS
    assert len(run["tuning"]) == 2 * 2 * 2
