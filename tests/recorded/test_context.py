"""The recorded run of context attention, at a tiny size: what it writes, and that models see what it says."""

import json
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from attn_book.corpus import KINDS, ambiguous_words
from attn_core import capture_attention
from attn_core.data import Vocab
from recorded import context

SMALL = {"TRAIN": 36, "TEST": 18, "STEPS": 2, "POINTS": 2, "BATCH_SIZE": 12, "LEARNING_RATE": 1e-2, "TIMED_STEPS": 1}
SMALL |= {"MODEL_DIM": 16, "HEADS": 2, "FEED_FORWARD_DIM": 24, "SEEDS": (0, 1)}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setattr(context, name, value)
    monkeypatch.setattr(context, "ProcessPoolExecutor", lambda *settings: nullcontext(SimpleNamespace(map=map)))
    context.corpus.cache_clear()
    yield
    context.corpus.cache_clear()


def test_a_dry_run(tmp_path):
    threads = torch.get_num_threads()
    found = json.loads(json.dumps(context.run(tmp_path), allow_nan=False))
    torch.set_num_threads(threads)
    every = [(form, seen) for seen in ("paragraph", "sentence") for form in context.FORMS]
    every.append(("plain", "sentence first"))
    assert [(cost["form"], cost["seen"]) for cost in found["costs"]] == every
    assert found["costs"][0]["ratio"] == 1.0
    wanted = [(0, *each) for each in every] + [(1, *each) for each in every if each != ("plain", "sentence")]
    assert [(run["seed"], run["form"], run["seen"]) for run in found["runs"]] == wanted
    for run in found["runs"]:
        assert [point["step"] for point in run["curve"]] == [1, 2]
        for point in run["curve"]:
            assert point["all"] == pytest.approx(sum(point[kind] for kind in KINDS) / 3, abs=2e-4)
        assert set(run["reached"]) == set(KINDS)
        assert len(run["layers"]) == (0 if run["form"] == "plain" else 2)
        for layer in run["layers"]:
            assert set(layer) == {"query", "key"} | ({"deciding", "by_chance"} if run["form"] == "dynamic" else set())
            assert all(0 < share < 1 for share in layer.values())
    sizes = {model["form"]: model["parameters"] for model in found["models"]}
    assert abs(sizes["plain"] - max(sizes.values())) < 0.01 * max(sizes.values())


def test_examples_are_encoded_as_they_are():
    examples = ambiguous_words(train=0, valid=0, test=18).test
    vocab = Vocab([example.paragraph.source for example in examples])
    nouns = [sense.noun.french[0] for pair in context.SENSES.values() for sense in pair]
    batch = context.encode(examples, vocab)
    for row, example in enumerate(examples):
        length = int(batch.lengths[row])
        words = [vocab.tokens[number] for number in batch.tokens[row, :length]]
        assert tuple(words) == example.paragraph.source and words[batch.positions[row]] == example.word
        assert tuple(batch.sentences[row, :length].tolist()) == example.paragraph.sentence_numbers
        assert batch.sentences[row, batch.positions[row]] == example.sentence
        assert nouns[batch.candidates[row, batch.senses[row]]] == example.translation
        assert example.kind == KINDS[row // 2 % 3] and batch.deciding[row] == example.deciding
    some = batch.at(torch.tensor([3, 1]))
    assert some.tokens.shape[1] == some.sentences.shape[1] == max(batch.lengths[3], batch.lengths[1])
    assert torch.equal(some.tokens[1, : batch.lengths[1]], batch.tokens[1, : batch.lengths[1]])


def change(form, seen, batch, tokens):
    """How far the logits move when the tokens are others."""
    model = context.build(form, seen, 0).eval()
    return float((model(batch) - model(batch._replace(tokens=tokens))).detach().abs().max())


@pytest.mark.parametrize("form", context.FORMS)
def test_who_sees_what(form):
    test = context.corpus()[1]
    mine = test.sentences == test.sentences.gather(1, test.positions[:, None])
    elsewhere = torch.where(mine, test.tokens, (test.tokens + 1).clamp(max=context.corpus()[2] - 1))
    assert change(form, "paragraph", test, elsewhere) > 1e-5
    assert (change(form, "sentence", test, elsewhere) == 0) == (form == "plain")


def test_the_first_layer_alone_is_confined():
    test = context.corpus()[1]
    model = context.build("plain", "sentence first", 0).eval()
    with capture_attention(model) as maps:
        model(test)
    far = (test.sentences[:, None, :, None] != test.sentences[:, None, None]).expand(-1, 2, -1, -1)
    first, second = (found[0] for name, found in maps.items())
    assert not first[far].any() and second[far].any()


def test_batches_are_the_same_for_all_and_have_each_twin_beside_the_other_once_an_epoch():
    drawn = [batch for _, batch in zip(range(3), context.batches(1), strict=False)]
    again = [batch for _, batch in zip(range(3), context.batches(1), strict=False)]
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(drawn, again, strict=True))
    seen = sorted(tuple(row[row > 0].tolist()) for batch in drawn for row in batch.tokens)
    assert seen == sorted(tuple(row[row > 0].tolist()) for row in context.corpus()[0].tokens)
    for batch in drawn:
        assert torch.equal(batch.candidates[::2], batch.candidates[1::2])
        assert torch.equal(batch.senses[::2], 1 - batch.senses[1::2])


def test_shares_are_counted_by_kind():
    class Knows(torch.nn.Module):
        """Right about the plain, about one of each pair of negated twins, and wrong about the bound."""

        def forward(self, batch):
            rows = torch.arange(len(batch.tokens))
            right = torch.where(rows // 2 % 3 == 0, 1, torch.where(rows // 2 % 3 == 1, 1 - rows % 2, 0))
            return torch.nn.functional.one_hot(torch.where(right == 1, batch.senses, 1 - batch.senses), 2).float()

    assert context.test(Knows()) == {"plain": 1.0, "negated": 0.5, "bound": 0.0, "all": 0.5}


def test_arrival_is_the_first_time_that_is_enough():
    curve = [
        {"step": 2, "plain": 0.5, "negated": 0.9, "bound": 0.5},
        {"step": 4, "plain": 0.95, "negated": 0.8, "bound": 0.6},
    ]
    assert context.arrival(curve) == {"plain": 4, "negated": 2, "bound": None}


def test_training_lowers_the_loss(monkeypatch):
    monkeypatch.setattr(context, "STEPS", 60)
    curve = context.measure("global", "paragraph", 0)["curve"]
    assert curve[-1]["loss"] < curve[0]["loss"] < 2 * math.log(2)
