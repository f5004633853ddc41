import itertools
from typing import NamedTuple

import pytest
import torch
from torch import nn

from attn_book.data import Pair, Vocab
from attn_book.teacher_forcing import teacher_forced_attention, teacher_forced_heads
from attn_book.translation import translate
from attn_core.decode import beam, greedy, sample
from attn_core.seq2seq import BahdanauDecoder, Encoder, FixedContextDecoder, MultiHeadDecoder, Seq2Seq

EOS = Vocab.EOS


class TableState(NamedTuple):
    """The tokens so far; the model below reads its logits from a table of them."""

    past: torch.Tensor
    row: torch.Tensor
    weights: torch.Tensor | None

    def select(self, rows):
        return TableState(self.past[rows], self.row[rows], None if self.weights is None else self.weights[rows])


class TableModel(nn.Module):
    """Logits that depend on the source row and the last two tokens, at random: a search has real choices to make."""

    def __init__(self, *, vocab=7, rows=3, attends=True, seed=0, dropout=0.0):
        super().__init__()
        self.dropout, self.frozen = nn.Dropout(dropout), nn.Dropout(dropout).eval()
        generator = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(2 * torch.randn(rows, vocab, vocab, vocab, generator=generator))
        with torch.no_grad():  # <pad>, <bos> and <unk> never come
            self.table[..., [Vocab.PAD, Vocab.BOS, Vocab.UNK]] = -1e9
        self.attends = attends

    def init_state(self, source, lengths):
        size = len(source)
        return TableState(torch.zeros(size, 2, dtype=torch.long), source[:, 0], None)

    def step(self, tokens, state):
        past = torch.stack([state.past[:, 1], tokens], dim=1)
        # A map that says which token it was paid for, so that the test can follow it through the beams.
        weights = nn.functional.one_hot(tokens, 7).float() if self.attends else None
        logits = self.dropout(self.table[state.row, past[:, 0], past[:, 1]])
        return logits, TableState(past, state.row, weights)


def log_probability(model, row, ids):
    """Of ids and, where it is among them, <eos>, from the table."""
    past, total = [0, Vocab.BOS], 0.0
    for token in ids:
        total += float(model.table[row, past[0], past[1]].log_softmax(-1)[token].detach())
        past = [past[1], token]
    return total


def everything(max_length, ends=(EOS,)):
    """All sentences that end within max_length tokens, their end counted."""
    for length in range(max_length):
        for words in itertools.product(sorted({EOS, 4, 5, 6} - set(ends)), repeat=length):
            yield from ([*words, end] for end in ends)


rows = torch.tensor([[0], [1], [2]])
ones = torch.ones(3, dtype=torch.long)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("ends", [(EOS,), (5,), (EOS, 6)])
def test_a_wide_beam_finds_the_best_sentence_of_all(seed, penalty, ends):
    model = TableModel(seed=seed)
    found = beam(model, rows, ones, max_length=4, beam_size=40, length_penalty=penalty, end_ids=ends)
    for row, hypothesis in enumerate(found):
        best = max(everything(4, ends), key=lambda ids: log_probability(model, row, ids) / len(ids) ** penalty)
        assert hypothesis.ids == best[:-1]
        assert hypothesis.finished
        assert hypothesis.log_probability == pytest.approx(log_probability(model, row, best), abs=1e-4)


def test_a_beam_of_one_without_penalty_follows_greedy():
    for seed in range(5):
        model = TableModel(seed=seed)
        ours = beam(model, rows, ones, max_length=6, beam_size=1, length_penalty=0.0)
        plain = greedy(model, rows, ones, max_length=6)
        assert [h.ids for h in ours] == [h.ids for h in plain]
        assert [h.finished for h in ours] == [h.finished for h in plain]


def test_greedy_takes_the_likeliest_token_and_knows_its_probability():
    model = TableModel(seed=3)
    for row, hypothesis in enumerate(greedy(model, rows, ones, max_length=8)):
        past, expected = [0, Vocab.BOS], []
        while len(expected) < 8 and (not expected or expected[-1] != EOS):
            expected.append(int(model.table[row, past[0], past[1]].argmax()))
            past = [past[1], expected[-1]]
        assert hypothesis.ids == [token for token in expected if token != EOS]
        assert hypothesis.log_probability == pytest.approx(log_probability(model, row, expected), abs=1e-4)


def test_a_sentence_begins_and_ends_with_the_given_ids():
    model = TableModel(seed=3)
    free = greedy(model, rows, ones, max_length=8, begin_id=6, end_ids=())
    for ours, whole in zip(greedy(model, rows, ones, max_length=8, begin_id=6, end_ids=(4, EOS)), free, strict=True):
        assert not whole.finished and len(whole.ids) == 8
        ends = [place for place, token in enumerate(whole.ids) if token in (4, EOS)]
        assert ours.ids == whole.ids[: ends[0] if ends else 8] and ours.finished == bool(ends)
        assert whole.ids[0] == int(model.table[free.index(whole), 0, 6].argmax())


BAD = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("search", [greedy, sample, beam])
def test_logits_without_a_greatest_number_are_refused_while_their_sentence_goes_on(search, bad):
    model = TableModel()
    with torch.no_grad():
        model.table[0, :, Vocab.BOS, EOS], model.table[1:, ..., EOS] = 1e9, -1e9
        model.table[0, :, EOS:] = bad  # after the first sentence has ended
    first, *others = search(model, rows, ones, max_length=4)
    assert first.finished and not first.ids and all(len(other.ids) == 4 for other in others)
    with torch.no_grad():
        model.table[2, Vocab.BOS] = bad
    with pytest.raises(ValueError, match="^logits: expected a finite greatest logit in each row, got NaN or an inf"):
        search(model, rows, ones, max_length=4)


@pytest.mark.parametrize("search", [greedy, beam])
def test_every_module_is_evaluated_and_left_in_its_own_mode(search):
    model = TableModel(dropout=0.5).train()
    model.frozen.eval()
    assert search(model, rows, ones, max_length=4)[0][:2] == search(model.eval(), rows, ones, max_length=4)[0][:2]
    model.train().frozen.eval()
    search(model, rows, ones, max_length=4)
    assert [module.training for module in model.modules()] == [True, True, False]


@pytest.mark.parametrize("search", [greedy, beam])
def test_attention_follows_its_own_sentence(search):
    found = [h for seed in range(20) for h in search(TableModel(seed=seed), rows, ones, max_length=7)]
    for hypothesis in found:
        # The map of output t was paid for the token before it.
        assert hypothesis.attention.argmax(1).tolist() == [Vocab.BOS, *hypothesis.ids][: len(hypothesis.ids)]
    assert all(h.attention is None for h in search(TableModel(attends=False), rows, ones, max_length=5))


@pytest.mark.parametrize("search", [greedy, beam])
def test_never_past_the_maximum_in_silence(search):
    model = TableModel()
    with torch.no_grad():
        model.table[..., EOS] = -1e9
    for hypothesis in search(model, rows, ones, max_length=3):
        assert len(hypothesis.ids) == 3 and not hypothesis.finished
        assert hypothesis.attention.shape == (3, 7)


def test_a_larger_length_penalty_favours_longer_sentences():
    lengths = [
        sum(
            len(h.ids)
            for seed in range(20)
            for h in beam(TableModel(seed=seed), rows, ones, max_length=6, beam_size=30, length_penalty=p)
        )
        for p in (0.0, 1.0, 2.0)
    ]
    assert lengths[0] < lengths[1] < lengths[2]


def small(decoder=BahdanauDecoder):
    torch.manual_seed(0)
    encoder = Encoder(len(english), embed_dim=6, hidden_dim=8)
    return Seq2Seq(encoder, decoder(len(french), embed_dim=6, hidden_dim=8, memory_dim=16))


pairs = [
    Pair(("the", "cat", "sleeps"), ("le", "chat", "dort")),
    Pair(("sleep",), ("dors", "bien")),
    Pair(("the", "black", "cat", "sleeps"), ("le", "chat", "noir", "dort")),
]
english = Vocab(pair.source for pair in pairs)
french = Vocab(pair.target for pair in pairs)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_translate_keeps_the_order_and_does_not_depend_on_the_batch(beam_size, batch_size):
    model = small().train()
    options = {"beam_size": beam_size, "max_length": 6}
    found = translate(model, [p.source for p in pairs], english, french, **options, batch_size=batch_size)
    assert model.training
    for pair, translation in zip(pairs, found, strict=True):
        (alone,) = translate(model, [pair.source], english, french, **options)
        assert translation.words == alone.words
        assert translation.log_probability == pytest.approx(alone.log_probability, abs=1e-4)
        columns = len(pair.source) + 1
        assert translation.attention.shape[1] == columns
        assert torch.allclose(translation.attention.sum(1), torch.ones(len(translation.attention)), atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_a_refusal_leaves_the_models_mode(training):
    model = small().train(training)
    with pytest.raises(ValueError, match="max_length"):
        translate(model, [("sleep",)], english, french, max_length=0)
    without = small(FixedContextDecoder).train(training)
    with pytest.raises(ValueError, match="one module"):
        teacher_forced_attention(without, pairs, english, french)
    assert model.training == without.training == training


def test_an_unknown_word_is_translated_as_unknown():
    (translation,) = translate(small(), [("the", "zebra")], english, french, max_length=4)
    assert translation.attention.shape[1] == 3


def test_forced_attention_is_the_attention_to_the_true_words():
    model = small()
    maps = teacher_forced_attention(model, pairs, english, french, batch_size=2)
    assert [tuple(weights.shape) for weights in maps] == [(3, 4), (2, 2), (4, 5)]
    model.eval()
    for pair, weights in zip(pairs, maps, strict=True):
        source = torch.tensor([[*english.encode(pair.source), EOS]])
        state = model.init_state(source, torch.tensor([source.shape[1]]))
        for t, token in enumerate([Vocab.BOS, *french.encode(pair.target)[:-1]]):
            _, state = model.step(torch.tensor([token]), state)
            assert torch.allclose(state.weights[0], weights[t], atol=1e-6)


def test_forced_heads_keep_what_forced_attention_averages():
    def two_heads(vocab_size, **sizes):
        return MultiHeadDecoder(vocab_size, **sizes, num_heads=2)

    model = small(two_heads)
    heads = teacher_forced_heads(model, pairs, english, french, batch_size=2)
    assert [tuple(weights.shape) for weights in heads] == [(2, 3, 4), (2, 2, 2), (2, 4, 5)]
    for pair, weights, mean in zip(pairs, heads, teacher_forced_attention(model, pairs, english, french), strict=True):
        assert torch.allclose(weights.mean(0), mean)
        state = model.init_state(
            torch.tensor([[*english.encode(pair.source), EOS]]), torch.tensor([len(pair.source) + 1])
        )
        query, _ = model.decoder.rnn(model.decoder.embedding(torch.tensor([[Vocab.BOS]])), state.hidden[None])
        first = model.decoder.attention.query(query)[0, 0].view(2, 1, 4) @ state.keys[0].mT / 2
        assert torch.allclose(first.softmax(-1)[:, 0], weights[:, 0], atol=1e-6)
