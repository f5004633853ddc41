"""Texts packed into batches: contents, order, what each epoch changes, and refusals."""

import pytest
import torch

from attn_book.corpus import next_sentence_texts, paragraph_corpus, two_part_texts
from attn_book.data import Vocab
from attn_book.data.vocab import PretrainingVocab
from attn_book.pretrain import LabelledBatches, MaskedBatches, StreamBatches, Text, pack, whole_texts

PARAGRAPHS = paragraph_corpus(train=30, valid=0, test=0).train
VOCAB = PretrainingVocab(p.source for p in PARAGRAPHS)
CLS, SEP, PAD = PretrainingVocab.CLS, PretrainingVocab.SEP, Vocab.PAD


def restored(batch):
    """The packed texts of a batch, hidden words put back, without padding."""
    tokens = torch.where(batch.target_out != PAD, batch.target_out, batch.source)
    return [row[:n].tolist() for row, n in zip(tokens, batch.source_lengths.tolist(), strict=True)]


def test_packed_texts():
    vocab = PretrainingVocab([("a", "b", "c")])
    a, b, c = vocab.encode(("a", "b", "c"))
    two, one = pack(Text(("a", "b"), ("c",)), vocab), pack(Text(("c",)), vocab)
    assert [x.tolist() for x in two] == [[CLS, a, b, SEP, c, SEP], [0, 0, 0, 0, 1, 1]]
    assert [x.tolist() for x in one] == [[CLS, c, SEP], [0, 0, 0]]


@pytest.mark.parametrize("make", [two_part_texts, next_sentence_texts])
def test_a_masked_batch_holds_its_texts_and_what_belongs_to_them(make):
    texts = make(PARAGRAPHS, seed=5)
    wanted = {tuple(pack(text, VOCAB)[0].tolist()): text for text in texts(2)}
    seen = []
    for batch in MaskedBatches(texts, VOCAB, batch_size=8, seed=1).epoch(2):
        assert batch.source.shape == batch.segments.shape == batch.target_out.shape
        for row, tokens in enumerate(restored(batch)):
            text = wanted[tuple(tokens)]
            n, second = len(tokens), len(text.second) + 1
            assert batch.segments[row].tolist() == [0] * (n - second) + [1] * second + [0] * (
                len(batch.source[row]) - n
            )
            assert batch.labels[row] == text.label and batch.at[row] == 0
            assert (batch.source[row, n:] == PAD).all() and (batch.target_out[row, n:] == PAD).all()
        seen += map(tuple, restored(batch))
    assert sorted(seen) == sorted(wanted)


def test_each_epoch_hides_other_words_and_is_the_same_each_time():
    batches = MaskedBatches(whole_texts([p.source for p in PARAGRAPHS]), VOCAB, batch_size=8, seed=1)

    def hidden(number, of=batches):
        return {
            tuple(tokens): tuple((batch.target_out[row] != PAD).nonzero().flatten().tolist())
            for batch in of.epoch(number)
            for row, tokens in enumerate(restored(batch))
        }

    first, again, second = hidden(0), hidden(0), hidden(1)
    assert first == again and first.keys() == second.keys() and len(first) == len(PARAGRAPHS)
    assert sum(first[key] == second[key] for key in first) <= 2
    other = MaskedBatches(whole_texts([p.source for p in PARAGRAPHS]), VOCAB, batch_size=8, seed=2)
    assert hidden(0, other) != first
    # A run that goes on in the middle of an epoch draws on: its batches are those of one never stopped.
    rest = list(batches.epoch(0))[2:]
    late = batches.epoch(0)
    next(late), next(late)
    assert all(torch.equal(a.source, b.source) for a, b in zip(rest, late, strict=True))


def test_labelled_batches():
    texts = [Text(p.sentences[0].source, p.sentences[1].source, i % 3, 2) for i, p in enumerate(PARAGRAPHS)]
    batches = LabelledBatches(texts, VOCAB, batch_size=7)
    assert len(batches) == len(list(batches)) == 5
    rows = [row for batch in batches for row in restored_sources(batch)]
    assert rows == [pack(text, VOCAB)[0].tolist() for text in texts]
    assert torch.cat([b.labels for b in batches]).tolist() == [text.label for text in texts]
    assert all((b.at == 2).all() and not hasattr(b, "target_out") for b in batches)
    shuffled = LabelledBatches(texts, VOCAB, batch_size=7, seed=3)
    orders = [[row for batch in shuffled.epoch(n) for row in restored_sources(batch)] for n in (0, 1, 1)]
    assert orders[0] != orders[1] == orders[2] and sorted(orders[0]) == sorted(orders[1]) == sorted(rows)
    batch = next(iter(batches))
    part = batch.rows(slice(1, 3)).to("cpu")
    assert len(part) == 2 and torch.equal(part.segments, batch.segments[1:3])


def restored_sources(batch):
    return [row[:n].tolist() for row, n in zip(batch.source, batch.source_lengths.tolist(), strict=True)]


def test_a_stream_joins_texts_and_each_token_is_the_target_of_the_one_before():
    words = [p.source for p in PARAGRAPHS]
    whole = [t for text in words for t in (Vocab.BOS, *VOCAB.encode(text), Vocab.EOS)]
    batches = StreamBatches(words, VOCAB, batch_size=3, length=20)
    found = list(batches)
    source, target = (torch.cat([getattr(b, name) for b in found]) for name in ("source", "target_out"))
    assert source.flatten().tolist() == whole[: source.numel()]
    assert target.flatten().tolist() == whole[1 : source.numel() + 1]
    assert len(whole) - 1 - source.numel() < 20 and len(batches) == len(found)
    assert [len(b) for b in found[:-1]] == [3] * (len(found) - 1)
    assert len(found[0].rows(slice(0, 2)).to("cpu")) == 2


def test_a_shuffled_stream_has_the_same_texts_in_an_order_of_seed_and_epoch():
    words = [p.source for p in PARAGRAPHS]
    batches = StreamBatches(words, VOCAB, batch_size=3, length=20, seed=1)
    one, same, other = (torch.cat([b.source for b in batches.epoch(n)]) for n in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other) and one.shape == other.shape
    texts = {tuple(VOCAB.encode(text)) for text in words}
    inner = " ".join(map(str, one.flatten().tolist())).split(f" {Vocab.EOS} {Vocab.BOS} ")[1:-1]
    assert inner and all(tuple(map(int, text.split())) in texts for text in inner)
