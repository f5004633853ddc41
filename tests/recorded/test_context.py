"""The recorded run of context attention, at a tiny size: what it writes, and that models see what it says."""

import json
import math
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from attn_book.corpus import KINDS, ambiguous_words
from attn_book.data import Vocab
from attn_core import capture_attention
from recorded import context, context_longer

SMALL = {"TRAIN": 36, "TEST": 18, "STEPS": 2, "POINTS": 2, "BATCH_SIZE": 12, "LEARNING_RATE": 1e-2}
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
    wanted = [(seed, *each) for seed in (0, 1) for each in context.MODELS]
    assert [(run["seed"], run["form"], run["told"]) for run in found["runs"]] == wanted
    for run in found["runs"]:
        assert [point["step"] for point in run["curve"]] == [1, 2]
        for point in run["curve"]:
            assert point["all"] == pytest.approx(sum(point[kind] for kind in KINDS) / 3, abs=2e-4)
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
        assert example.kind == KINDS[row // 2 % 3]
    some = batch.at(torch.tensor([3, 1]))
    assert some.tokens.shape[1] == some.sentences.shape[1] == max(batch.lengths[3], batch.lengths[1])
    assert torch.equal(some.tokens[1, : batch.lengths[1]], batch.tokens[1, : batch.lengths[1]])


def test_pieces_are_cut_at_random_and_alike_for_twins():
    train = context.corpus()[0]
    assert torch.equal(train.pieces[::2], train.pieces[1::2])
    assert torch.equal(train.pieces.amax(1), train.sentences.amax(1))
    for pieces, sentences, length in zip(train.pieces[::2], train.sentences[::2], train.lengths[::2], strict=True):
        steps = pieces[1:length] - pieces[: length - 1]
        assert pieces[0] == 0 and set(steps.tolist()) <= {0, 1}
        assert not torch.equal(pieces[:length], sentences[:length])
    starts = (train.pieces[::2, 1:] > train.pieces[::2, :-1]).nonzero()[:, 1]
    assert len(set(starts.tolist())) > 12


@pytest.mark.parametrize(("form", "told"), context.MODELS)
def test_every_model_sees_the_paragraph_and_what_it_is_told(form, told):
    test = context.corpus()[1]
    model = context.build(form, told, 0).eval()
    own = test.sentences.gather(1, test.positions[:, None])
    elsewhere = torch.where(test.sentences == own, test.tokens, (test.tokens + 1).clamp(max=context.corpus()[2] - 1))
    shuffled = {name: (getattr(test, name) > 0).long() for name in ("sentences", "pieces")}
    with torch.no_grad():
        before = model(test)
        assert not torch.allclose(before, model(test._replace(tokens=elsewhere)), atol=1e-5)
        for name, groups in shuffled.items():
            moved = not torch.allclose(before, model(test._replace(**{name: groups})), atol=1e-6)
            assert moved == (told == {"sentences": "sentences", "pieces": "random cuts"}[name])


@pytest.mark.parametrize("told", ["sentences", "random cuts"])
def test_the_first_layer_alone_is_confined(told):
    test = context.corpus()[1]
    model, groups = context.build("plain", told, 0).eval(), test.pieces if told == "random cuts" else test.sentences
    with capture_attention(model) as maps:
        model(test)
    far = (groups[:, None, :, None] != groups[:, None, None]).expand(-1, 2, -1, -1)
    first, *others = (found[0] for found in maps.values())
    assert not first[far].any() and all(each[far].any() for each in others)


def test_batches_are_the_same_for_all_and_have_each_twin_beside_the_other(monkeypatch):
    monkeypatch.setattr(context, "BATCH_SIZE", 400)
    drawn = [next(context.batches(seed)) for seed in (1, 1, 2)]
    assert torch.equal(drawn[0].tokens, drawn[1].tokens) and not torch.equal(drawn[0].tokens, drawn[2].tokens)
    assert torch.equal(drawn[0].candidates[::2], drawn[0].candidates[1::2])
    assert torch.equal(drawn[0].senses[::2], 1 - drawn[0].senses[1::2])


def test_bound_twins_are_drawn_more_often():
    kinds = {tuple(row[row > 0].tolist()): KINDS[i // 2 % 3] for i, row in enumerate(context.corpus()[0].tokens)}
    drawn = (batch for _, batch in zip(range(100), context.batches(0), strict=False))
    shares = Counter(kinds[tuple(row[row > 0].tolist())] for batch in drawn for row in batch.tokens)
    assert shares["bound"] == pytest.approx(0.8 * shares.total(), rel=0.1)
    assert shares["plain"] == pytest.approx(0.1 * shares.total(), rel=0.5)


def test_shares_are_counted_by_kind():
    class Knows(torch.nn.Module):
        """Right about the plain, about one of each pair of negated twins, and wrong about the bound."""

        def forward(self, batch):
            rows = torch.arange(len(batch.tokens))
            right = torch.where(rows // 2 % 3 == 0, 1, torch.where(rows // 2 % 3 == 1, 1 - rows % 2, 0))
            return torch.nn.functional.one_hot(torch.where(right == 1, batch.senses, 1 - batch.senses), 2).float()

    assert context.test(Knows()) == {"plain": 1.0, "negated": 0.5, "bound": 0.0, "all": 0.5}


def test_training_lowers_the_loss(monkeypatch):
    monkeypatch.setattr(context, "STEPS", 60)
    curve = context.measure("global", "nothing", 0)["curve"]
    assert curve[-1]["loss"] < curve[0]["loss"] < 2 * math.log(2)


def test_a_longer_run_is_tested_as_often(tmp_path, monkeypatch):
    monkeypatch.setattr(context_longer, "SEEDS", (0,))
    threads = torch.get_num_threads()
    found = context_longer.run(tmp_path)
    torch.set_num_threads(threads)
    (run,) = found["runs"]
    assert found["steps"] == 6 and [point["step"] for point in run["curve"]] == [1, 2, 3, 4, 5, 6]
    assert (run["form"], run["told"]) == ("plain", "nothing")
