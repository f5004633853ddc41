"""Pair, Vocab, Batches: contents and refusals."""

import pytest
import torch
from torch.utils.data import DataLoader

from attn_book.corpus import corpus
from attn_book.data import Batches, Pair, Vocab

PAIRS = [
    Pair(("a", "cat"), ("un", "chat")),
    Pair(("a", "dog", "sleeps"), ("un", "chien", "dort")),
    Pair(("cats",), ("des", "chats")),
]


def vocabs(pairs):
    return Vocab(p.source for p in pairs), Vocab(p.target for p in pairs)


def test_reversed_swaps_sides_and_links():
    pair = Pair(("a", "b"), ("x",), frozenset({(1, 0)}), "s")
    assert pair.reversed() == Pair(("x",), ("a", "b"), frozenset({(0, 1)}), "s")
    assert pair.reversed().reversed() == pair


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (((), ("x",)), "source"),
        ((("a",), ()), "target"),
        ((["a"], ("x",)), "source"),
        (("a", ("x",)), "source"),
        ((("a",), ("x",), frozenset({(1, 0)})), "links"),
        ((("a",), ("x",), frozenset({(0, -1)})), "links"),
        ((("a",), ("x",), frozenset({(0.5, 0)})), "links"),
        ((("a",), ("x",), frozenset({(0, 0, 0)})), "links"),
        ((("a",), ("x",), [(0, 0)]), "links"),
        (((1,), ("x",)), "source"),
        ((("a",), ("",)), "target"),
    ],
)
def test_wrong_pairs_are_refused(arguments, name):
    with pytest.raises(ValueError, match=name):
        Pair(*arguments)


def test_vocab_orders_by_frequency_then_alphabet():
    vocab = Vocab([("b", "a"), ("c", "b")])
    assert vocab.tokens == ("<pad>", "<bos>", "<eos>", "<unk>", "b", "a", "c")
    assert len(vocab) == 7 and "b" in vocab and "z" not in vocab and 4 not in vocab
    assert (Vocab.PAD, Vocab.BOS, Vocab.EOS, Vocab.UNK) == (0, 1, 2, 3)
    assert vocab.encode(("a", "z", "b")) == [5, 3, 4]
    assert vocab.decode([1, 5, 0, 3, 4, 2, 6]) == ["a", "<unk>", "b"]
    assert vocab.decode(torch.tensor([5, 2])) == ["a"]
    assert Vocab([("b", "a"), ("b",)], min_count=2).tokens[4:] == ("b",)


@pytest.mark.parametrize("sentences", [[], ["ab"], [()], [("a", 1)], [("a", "")]])
def test_wrong_sentences_are_refused(sentences):
    with pytest.raises(ValueError, match="sentences"):
        Vocab(sentences)


def test_wrong_vocab_arguments_are_refused():
    vocab = Vocab([("a",)])
    for count in (0, 1.5, True):
        with pytest.raises(ValueError, match="min_count"):
            Vocab([("a",)], min_count=count)
    for tokens in ("a", (), [1], [""]):
        with pytest.raises(ValueError, match="tokens"):
            vocab.encode(tokens)
    for ids in ([5], [-1]):
        with pytest.raises(ValueError, match="ids"):
            vocab.decode(ids)
    for ids in ([1.0], ["a"], torch.tensor([1.0])):
        with pytest.raises(TypeError, match="integer"):
            vocab.decode(ids)


def test_a_batch_to_the_token():
    source_vocab, target_vocab = vocabs(PAIRS)
    (batch,) = Batches(PAIRS, source_vocab, target_vocab, batch_size=3)
    assert [source_vocab.decode(row) for row in batch.source] == [list(p.source) for p in PAIRS]
    a, cat = source_vocab.encode(("a", "cat"))
    assert batch.source.tolist()[0] == [a, cat, Vocab.EOS, Vocab.PAD]
    un, chat = target_vocab.encode(("un", "chat"))
    assert batch.target_in.tolist()[0] == [Vocab.BOS, un, chat, Vocab.PAD]
    assert batch.target_out.tolist()[0] == [un, chat, Vocab.EOS, Vocab.PAD]
    assert batch.source_lengths.tolist() == [3, 4, 2] and batch.target_lengths.tolist() == [3, 4, 3]
    assert batch.source.dtype == torch.int64 and len(batch) == 3
    assert batch.to("meta").source.device.type == "meta"


def test_without_a_seed_in_order():
    batches = Batches(PAIRS, *vocabs(PAIRS), batch_size=2)
    assert len(batches) == 2 and [len(batch) for batch in batches] == [2, 1]
    first = next(iter(batches))
    assert first.source_lengths.tolist() == [3, 4]


@pytest.fixture(scope="module")
def many():
    return corpus(train=3_000, valid=0, test=0, structures=0, pronouns=0).train


def rows(batches):
    return [tuple(row.tolist()) for batch in batches for row in batch.target_out]


def test_epochs(many):
    batches = Batches(many, *vocabs(many), batch_size=64, seed=3)
    vocab = vocabs(many)[1]
    again = Batches(many, *vocabs(many), batch_size=64, seed=3)
    assert rows(batches) == rows(again.epoch(0)) == rows(batches.epoch(0))
    assert rows(batches.epoch(1)) == rows(again.epoch(1)) != rows(batches.epoch(0))
    assert rows(Batches(many, *vocabs(many), batch_size=64, seed=4)) != rows(batches)
    assert sorted(tuple(vocab.decode(row)) for row in rows(batches.epoch(2))) == sorted(p.target for p in many)
    assert len(list(batches)) == len(batches) == 47


def test_little_is_padding(many):
    batches = Batches(many, *vocabs(many), batch_size=64, seed=0)
    cells = sum(batch.source.numel() + batch.target_in.numel() for batch in batches)
    words = sum(int(batch.source_lengths.sum() + batch.target_lengths.sum()) for batch in batches)
    assert 1 - words / cells < 0.10


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.0}, "batch_size"),
        ({"seed": -1}, "seed"),
        ({"seed": "0"}, "seed"),
        ({"pairs": []}, "pairs"),
        ({"pairs": None}, "pairs"),
        ({"pairs": ["a b"]}, "pairs"),
        ({"target_vocab": ["a"]}, "target_vocab"),
    ],
)
def test_wrong_batches_are_refused(change, name):
    source_vocab, target_vocab = vocabs(PAIRS)
    arguments = {"pairs": PAIRS, "source_vocab": source_vocab, "target_vocab": target_vocab, "batch_size": 2}
    with pytest.raises(ValueError, match=name):
        Batches(**{**arguments, **change})


def test_wrong_epoch_is_refused():
    with pytest.raises(ValueError, match="number"):
        Batches(PAIRS, *vocabs(PAIRS), batch_size=2, seed=0).epoch(-1)


@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"batch_size": None, "num_workers": 1}])
def test_a_data_loader_of_batches_is_refused(options):
    with pytest.raises(ValueError, match="batches: expected a loop over them"):
        next(iter(DataLoader(Batches(PAIRS, *vocabs(PAIRS), batch_size=2), **options)))


def test_a_data_loader_of_listed_batches_gives_them():
    batches = list(Batches(PAIRS, *vocabs(PAIRS), batch_size=2))
    assert list(DataLoader(batches, batch_size=None)) == batches
