"""The recorded runs of chapter 3, at a tiny size: what they write, and that they compare what they say they compare."""

import json

import pytest
import torch

from attn_book.corpus import corpus
from attn_book.data import Batches, Vocab
from recorded import luong, output_layers, score_starts


def small_corpus(**sizes):
    return corpus(train=96, valid=6, test=6, structures=6)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    for script in (luong, output_layers, score_starts):
        monkeypatch.setattr(script, "corpus", small_corpus)
        monkeypatch.setattr(script, "SEEDS", (0,))
    monkeypatch.setattr(luong, "EPOCHS", 2)
    monkeypatch.setattr(score_starts, "EPOCHS", 2)


@pytest.fixture
def task():
    pairs = list(small_corpus().train)
    vocabs = Vocab(p.source for p in pairs), Vocab(p.target for p in pairs)
    return next(iter(Batches(pairs[:4], *vocabs, batch_size=4))), *map(len, vocabs)


@pytest.mark.parametrize("script", [output_layers, score_starts])
def test_a_tiny_run(script, tiny, tmp_path):
    found = script.run(tmp_path)
    json.dumps(found, allow_nan=False)
    for one in found["runs"]:
        assert one["seed"] == 0
        for scores in [*one.get("curve", []), *(v for v in one.values() if isinstance(v, dict))]:
            assert 0 <= scores["alignment_error"] <= 1 and 0 <= scores["bleu"] <= 100


def test_the_models_of_one_comparison_differ_in_one_thing():
    for script in (luong, output_layers, score_starts):
        with pytest.raises(ValueError, match="kind: expected one of"):
            script.build("soft", 20, 30)
    sizes = {kind: sum(p.numel() for p in luong.build(kind, 20, 30).parameters()) for kind in luong.KINDS}
    swapped = {k: sum(p.numel() for p in output_layers.build(k, 20, 30).parameters()) for k in output_layers.KINDS}
    layer = swapped["concat, maxout"] - sizes["concat"]
    assert layer == sizes["Bahdanau"] - swapped["Bahdanau, no maxout"] > 0
    for kind in score_starts.KINDS:
        size = sum(p.numel() for p in score_starts.build(kind, 20, 30).parameters())
        assert size == sizes["dot" if kind == "dot, scaled" else "general"]


@pytest.mark.parametrize("kind", output_layers.KINDS)
def test_word_by_word_a_decoder_with_another_output_layer_gives_the_same(kind, task):
    batch, *sizes = task
    model = output_layers.build(kind, *sizes).eval()
    whole = model(batch.source, batch.source_lengths, batch.target_in)
    state = model.init_state(batch.source, batch.source_lengths)
    for t, tokens in enumerate(batch.target_in.unbind(1)):
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits, whole[:, t])


def test_from_the_identity_general_begins_as_dot(task):
    batch, *sizes = task
    general = score_starts.build("general, from identity", *sizes).eval()
    dot = luong.build("dot", *sizes).eval()
    parameters = {k: v for k, v in general.state_dict().items() if "key_to_query" not in k}
    dot.load_state_dict(parameters)
    inputs = (batch.source, batch.source_lengths, batch.target_in)
    torch.testing.assert_close(general(*inputs), dot(*inputs))


def test_half_a_run_is_the_first_half_of_the_whole(tiny, monkeypatch):
    data = small_corpus()
    vocabs = Vocab(p.source for p in data.train), Vocab(p.target for p in data.train)
    parts = {part: list(getattr(data, part)) for part in ("train", "valid", "test", "structures")}
    monkeypatch.setattr(score_starts, "build", luong.build)
    half = score_starts.measure("dot", 0, parts, vocabs)["curve"]
    whole = luong.measure("dot", 0, parts, vocabs)["curve"]
    assert len(whole) > len(half) >= 2
    for one, other in zip(half, whole[: len(half)], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
