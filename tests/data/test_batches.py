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


def test_vocab_orders_by_frequency_then_alphabet():
    vocab = Vocab([("b", "a"), ("c", "b")])
    assert vocab.tokens == ("<pad>", "<bos>", "<eos>", "<unk>", "b", "a", "c")
    assert len(vocab) == 7 and "b" in vocab and "z" not in vocab and 4 not in vocab
    assert (Vocab.PAD, Vocab.BOS, Vocab.EOS, Vocab.UNK) == (0, 1, 2, 3)
    assert vocab.encode(("a", "z", "b")) == [5, 3, 4]
    assert vocab.decode([1, 5, 0, 3, 4, 2, 6]) == ["a", "<unk>", "b"]
    assert vocab.decode(torch.tensor([5, 2])) == ["a"]
    assert Vocab([("b", "a"), ("b",)], min_count=2).tokens[4:] == ("b",)


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


@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"batch_size": None, "num_workers": 1}])
def test_a_data_loader_of_batches_is_refused(options):
    with pytest.raises(ValueError, match="batches: expected a loop over them"):
        next(iter(DataLoader(Batches(PAIRS, *vocabs(PAIRS), batch_size=2), **options)))
