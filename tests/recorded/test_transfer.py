"""The recorded run of transfer: what is told and what is asked, and a tiny run of it all."""

import json
from concurrent.futures import Executor, Future

import pytest
import torch
from safetensors.torch import load_file

from attn_book.pretrain import MaskedLanguageModel, Text, pack
from recorded import transfer

TINY = transfer.Plan(60, 150, 40, 1, 1, {10: 1, 30: 1})


@pytest.fixture(scope="module")
def world():
    return transfer.World(TINY)


def test_no_sentence_that_is_asked_about_has_been_read(world):
    read = {pair.source for paragraph in world.stories.train for pair in paragraph.sentences}
    for task in ("sense", "order"):
        for texts in world.tasks[task].values():
            assert not read & {tuple(text.first) for text in texts}
            assert [t.label for t in texts].count(1) * 2 == len(texts)


def test_a_bag_of_words_is_right_half_the_time(world):
    for task in ("sense", "order", "entailment"):
        assert transfer.bag_of_words(world.tasks[task], world.vocab, 30) == 0.5


def test_every_task_has_its_labels_or_says_that_it_has_not(world):
    assert {len(parts["train"]) for parts in world.tasks.values()} == {30}
    assert {len(parts["test"]) for parts in world.tasks.values()} == {40}
    assert world.counts("sense") == [10, 30]
    assert world.counts("entailment") == [30]
    with pytest.raises(ValueError, match="held: expected more than 150 paragraphs"):
        transfer.World(transfer.Plan(60, 150, 400, 1, 1, {30: 1})).tasks  # noqa: B018


def test_two_words_are_exchanged_in_every_other_text():
    sentences = [tuple("a b a c .".split()), tuple("b c d e f .".split())] * 2
    texts = transfer.word_orders(sentences, 40)
    assert [t.label for t in texts] == [1, 0] * 2
    assert [t.first for t in texts[::2]] == sentences[:2]
    for whole, other in zip(texts[::2], texts[1::2], strict=True):
        differ = [i for i, (a, b) in enumerate(zip(whole.first, other.first, strict=True)) if a != b]
        assert len(differ) == 2
        assert sorted(whole.first) == sorted(other.first)
        assert other.first[-1] == "."
    assert len(transfer.word_orders(sentences, 2)) == 2


def test_features_are_of_the_first_token_and_of_the_words_alone(world):
    encoder = transfer.new_encoder(world, 0).eval()
    texts = world.tasks["next sentence"]["test"][:3]
    found = transfer.features(encoder, texts, world.vocab)
    for number, text in enumerate(texts):
        tokens, segments = pack(text, world.vocab)
        x = encoder(tokens[None], torch.tensor([len(tokens)]), segments[None])[0]
        words = tokens >= len(world.vocab.SPECIALS)
        torch.testing.assert_close(found["frozen"][number], x[0])
        torch.testing.assert_close(found["frozen, mean"][number], x[words].mean(0))


def test_a_head_learns_from_the_labels_it_is_given_alone():
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    parts = {"train": [Text(("a",), label=int(row[0] > 0)) for row in x]}
    parts["test"] = parts["train"]
    found = [transfer.head_on({"train": x, "test": x}, parts, labels) for labels in (4, 60)]
    assert found[1]["test"] == 1.0 > found[0]["test"] > 0.4 and found[0]["last_loss"] < 0.01


class Here(Executor):
    """Runs what is submitted at once, in this process."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def submit(self, function, /, *arguments):
        done = Future()
        done.set_result(function(*arguments))
        return done


def test_a_tiny_run(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(transfer, "FROZEN_STEPS", 3)
    threads = torch.get_num_threads()
    found = transfer.run(tmp_path, TINY, (0,), [(1, 8), (2, 16)])
    torch.set_num_threads(threads)
    json.dumps(found, allow_nan=False)
    assert [run["start"] for run in found["runs"]] == list(transfer.STARTS)
    world = transfer.World(TINY)
    for run in found["runs"]:
        ways = ("tuned", "frozen", "frozen, mean")
        wanted = {(t, w, n) for t in world.tasks for w in ways for n in world.counts(t)}
        assert {(t["task"], t["weights"], t["labels"]) for t in run["tuning"]} == wanted
        assert len(run["tuning"]) == len(wanted)
        assert all(0 <= t["test"] <= 1 for t in run["tuning"])
        assert ("pretraining" in run) == (run["start"] != "scratch")
    assert ["follows" in run["pretraining"]["curve"][-1] for run in found["runs"][:2]] == [False, True]
    assert [(g["layers"], g["width"]) for g in found["growth"]] == [(1, 8), (2, 16)]
    assert len({g["steps"] for g in found["growth"]}) == 1
    weights = load_file(tmp_path / "transfer.safetensors")
    model = MaskedLanguageModel(transfer.new_encoder(world, 1))
    model.load_state_dict({name: x.float() for name, x in weights.items()})
    assert all(x.dtype == torch.float16 for x in weights.values())
    assert tuple(found["vocabulary"]) == world.vocab.tokens
