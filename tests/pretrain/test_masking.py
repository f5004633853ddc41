"""Hidden words: how many, which, and what stands in their place."""

import pytest
import torch

from attn_book.data import Vocab
from attn_book.data.vocab import PretrainingVocab
from attn_book.pretrain import mask_tokens

CLS, SEP, MASK, PAD = PretrainingVocab.CLS, PretrainingVocab.SEP, PretrainingVocab.MASK, Vocab.PAD
FIRST = len(PretrainingVocab.SPECIALS)
SIZE = 300


def rows(count=400, words=40, padding=7):
    """<cls> words <sep> words <sep> and padding, the words drawn from a vocabulary of `SIZE`."""
    drawn = torch.randint(FIRST, SIZE, (count, words), generator=torch.Generator().manual_seed(3))
    cls, sep, pad = (torch.full((count, n), token) for n, token in ((1, CLS), (1, SEP), (padding, PAD)))
    return torch.cat((cls, drawn[:, :15], sep, drawn[:, 15:], sep, pad), 1)


def masked(tokens, seed=0, **options):
    return mask_tokens(tokens, SIZE, generator=torch.Generator().manual_seed(seed), **options)


def test_pretraining_vocabularies_keep_the_numbers_of_the_four_special_tokens():
    plain, mine = Vocab([("b", "a", "b")]), PretrainingVocab([("b", "a", "b", "<mask>")])
    assert mine.tokens == (*plain.tokens[:4], "<cls>", "<sep>", "<mask>", "b", "a")
    assert mine.encode(("<cls>", "<sep>", "<mask>", "b", "x")) == [*[Vocab.UNK] * 3, 7, Vocab.UNK]
    assert "<mask>" not in mine
    assert mine.decode([1, 4, 7, 6, 8, 5, 2, 7]) == ["<cls>", "b", "<mask>", "a", "<sep>"]
    assert len(Vocab.SPECIALS) == 4


def test_fifteen_percent_are_chosen_and_of_these_eighty_ten_and_ten():
    tokens = rows()
    inputs, targets = masked(tokens)
    chosen = targets != PAD
    assert (chosen.sum(1) == 6).all()  # .15 of 40
    hidden = inputs[chosen] == MASK
    kept = inputs[chosen] == tokens[chosen]
    # 2400 tokens: a standard deviation is .008 for the first share and .006 for the others.
    assert hidden.float().mean().item() == pytest.approx(0.8, abs=0.03)
    assert kept.float().mean().item() == pytest.approx(0.1, abs=0.025)
    assert (~hidden & ~kept).float().mean().item() == pytest.approx(0.1, abs=0.025)


def test_targets_hold_the_original_and_all_else_is_left_as_it_was():
    tokens = rows()
    before = tokens.clone()
    inputs, targets = masked(tokens)
    chosen = targets != PAD
    assert torch.equal(targets[chosen], tokens[chosen])
    assert torch.equal(inputs[~chosen], tokens[~chosen])
    assert torch.equal(tokens, before)


def test_special_tokens_are_neither_chosen_nor_put_in():
    tokens = rows()
    tokens[:, 3] = Vocab.UNK
    inputs, targets = masked(tokens, share=1.0)
    special = tokens < FIRST
    assert (targets[special] == PAD).all() and torch.equal(targets[~special], tokens[~special])
    drawn = inputs[~special & (inputs != tokens) & (inputs != MASK)]
    assert drawn.min() >= FIRST and drawn.max() < SIZE and len(drawn.unique()) > 200


def test_a_short_text_hides_one_word_and_one_without_words_none():
    tokens = torch.tensor([[CLS, 9, 8, SEP], [CLS, SEP, PAD, PAD]])
    _, targets = masked(tokens)
    assert (targets != PAD).sum(1).tolist() == [1, 0]


def test_the_generator_decides():
    tokens = rows(20)
    one, same, other = masked(tokens), masked(tokens), masked(tokens, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one[1], other[1])
