"""The recorded run of sentence order: what is asked, and a tiny run."""

import json

import torch

from attn_book.corpus import NOUNS
from recorded import sentence_order, transfer

TINY = transfer.Plan(60, 150, 40, 1, 1, {10: 1, 30: 1})


def test_both_classes_share_their_nouns_equally_often():
    known = {noun.english[0] for noun in NOUNS.values()}
    shared = {0: [], 1: []}
    world = transfer.World(transfer.Plan(60, 600, 600, 1, 1, {600: 1}))
    for text in sentence_order.parts_of(world)["test"]:
        shared[text.label].append(bool(known & {*text.first} & {*text.second}))
    assert abs(sum(shared[0]) / len(shared[0]) - sum(shared[1]) / len(shared[1])) < 0.12


def test_a_tiny_run(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "FROZEN_STEPS", 3)
    threads = torch.get_num_threads()
    found = sentence_order.run(tmp_path, TINY, (0,))
    torch.set_num_threads(threads)
    json.dumps(found, allow_nan=False)
    (run,) = found["runs"]
    assert {"loss", "accuracy", "follows"} <= set(run["curve"][-1])
    ways = {(t["task"], t["weights"], t["labels"]) for t in run["tuning"]}
    assert len(ways) == len(run["tuning"]) == 2 * 3 * 2
    assert 0.4 < found["bag_of_words"] <= 1
