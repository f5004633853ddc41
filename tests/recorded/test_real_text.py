"""The recorded run on real text: what is read and asked, and a tiny run."""

import json

import pytest

from attn_book import tatoeba
from attn_book.corpus import paragraph_corpus
from recorded import real_text, transfer

TINY = real_text.Plan(paragraphs=0, held=30, tested=20, epochs=1, growing=0, labels={10: 1, 30: 1}, pieces=150, few=40)


@pytest.fixture
def world(monkeypatch):
    told = paragraph_corpus(train=150, valid=0, test=0).train
    rows = [(" ".join(pair.source), "") for story in told for pair in story.sentences]
    monkeypatch.setattr(tatoeba, "lines", lambda: [(text.replace(" ", " , ", 1), "") for text, _ in rows[:9]] + rows)
    return real_text.World(TINY)


def test_nothing_that_is_asked_was_read(world):
    parts = {
        name: [tuple(word for word in words if word.isalnum()) for words in found]
        for name, found in world.sentences.items()
    }
    assert len(parts["valid"]) == len(parts["test"]) == 30 and len(parts["train"]) > 100
    together = [words for found in parts.values() for words in found]
    assert len(together) == len(set(together))


def test_twins_have_the_same_pieces(world):
    texts = world.tasks["order"]["test"]
    assert len(texts) == 20
    for text, twin in zip(texts[::2], texts[1::2], strict=True):
        assert (text.label, twin.label) == (1, 0)
        assert text.first != twin.first and sorted(text.first) == sorted(twin.first)


def test_pieces_spell_their_words(world):
    for words, pieces in zip(world.sentences["train"], world.read, strict=True):
        assert " ".join(pieces).replace(" ##", "").split() == list(words)
    assert any(piece.startswith("##") for pieces in world.read for piece in pieces)


def test_a_tiny_run(world, monkeypatch):
    monkeypatch.setattr(transfer, "FROZEN_STEPS", 3)
    monkeypatch.setattr(real_text, "World", lambda plan: world)
    runs = {start: real_text.measure(start, 0, TINY) for start in real_text.STARTS}
    json.dumps(runs, allow_nan=False)
    assert "pretraining" not in runs["scratch"]
    both = [runs[start]["pretraining"] for start in ("all", "few")]
    assert both[0]["sentences"] == len(world.read) and both[1]["sentences"] == 40
    assert abs(both[0]["steps"] - both[1]["steps"]) <= 6
    assert all(len(one["curve"]) == 1 for one in both)
    for run in runs.values():
        assert len(run["tuning"]) == 3 * 2
    assert all(len(best) == 5 for best in runs["all"]["guesses"].values())
    bare = real_text.baselines(world)
    assert 0 < bare["neighbours"] < 1 and bare["by_frequency"] > 0
