"""The recorded run of scaling, at a tiny size, and the bound on the entropy of the stories."""

import json
import math
from itertools import product
from random import Random

import pytest
import torch

from attn_book.corpus import paragraph_corpus
from attn_book.corpus.grammar import stream
from attn_book.corpus.paragraphs import _tell
from recorded import scaling_law


def test_a_dry_run(tmp_path, monkeypatch):
    small = {"WIDTHS": (16, 32), "AMOUNTS": (30, 60), "RATES": (0.1, 0.2), "SEEDS": (0, 1), "VALID": 5, "TEST": 8}
    for name, value in small.items():
        monkeypatch.setattr(scaling_law, name, value)
    threads = torch.get_num_threads()
    found = json.loads(json.dumps(scaling_law.run(tmp_path), allow_nan=False))
    torch.set_num_threads(threads)
    trained = [(run["width"], run["stories"], run["seed"]) for run in found["runs"]]
    assert sorted(trained) == sorted(product((16, 32), (30, 60), (0, 1)))
    for width in (16, 32):
        tried = {one["learning_rate"]: one["valid"] for one in found["sweep"] if one["width"] == width}
        best = min(tried, key=tried.get)
        assert len(tried) == 2 and {r["learning_rate"] for r in found["runs"] if r["width"] == width} == {best}
        embedding = width * found["training"]["vocab"]
        sizes = found["parameters"][str(width)]
        assert sizes["all"] - sizes["without_embeddings"] == embedding


def test_the_mean_loss_is_that_of_the_tokens_one_by_one():
    corpus = paragraph_corpus(train=20, valid=0, test=0)
    texts = [story.source for story in corpus.train]
    vocab = scaling_law.Vocab(texts)
    model = scaling_law.build(16, len(vocab), 0)
    expected = []
    for text in texts:
        ids = torch.tensor([[1, *vocab.encode(text), 2]])
        with torch.no_grad():
            chances = model(ids)[0].double().log_softmax(-1)
        expected += [-chances[t - 1, ids[0, t]].item() for t in range(1, ids.shape[1])]
    assert scaling_law.mean_loss(model, texts, vocab) == pytest.approx(sum(expected) / len(expected), rel=1e-4)


def test_a_roll_keeps_the_interval_that_comparisons_left():
    def branch(value):
        roll = scaling_law.Roll(value)
        first = roll < 0.15
        second = roll > 0.7
        return (first, second), roll.high - roll.low

    widths = dict(branch(value) for value in (0.1, 0.5, 0.9))
    assert widths == {
        (True, False): pytest.approx(0.15),
        (False, False): pytest.approx(0.55),
        (False, True): pytest.approx(0.3),
    }


def test_choices_draw_what_the_corpus_drew():
    plain, watched = stream("paragraphs test", 0), scaling_law.Choices(stream("paragraphs test", 0))
    for _ in range(30):
        watched.begin()
        assert _tell(watched) == _tell(plain)


def test_the_surprise_is_at_most_that_of_all_choices():
    """At most that of all choices, had every draw of steps been allowed and every noun been named."""
    choices = scaling_law.Choices(Random(3))
    story = _tell(choices)
    (steps,) = [steps for name, _, steps in scaling_law.STORIES if name == story.story]
    bare = choices.nats - sum(math.log(roll.high - roll.low) for roll in choices.rolls)
    most = bare + sum(math.log(len(options)) for _, options in choices.chosen)
    most += math.log(math.comb(len(steps), choices.drawn))
    assert 0 < choices.surprise(story) <= most + 1e-9


def test_the_bound_lies_between_a_coin_and_single_words():
    stories = paragraph_corpus(train=0, valid=0, test=200).test
    bound = scaling_law.entropy_bound(stories)
    words = [word for story in stories for word in (*story.source, "<eos>")]
    counts = {word: words.count(word) for word in set(words)}
    single = -sum(n / len(words) * math.log(n / len(words)) for n in counts.values())
    assert math.log(2) < bound < single / 2
