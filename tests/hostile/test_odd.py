"""Inputs that are odd but legitimate, with what has to come out."""

import math

import torch

import attn_core
from attn_book.alignment import alignment_error
from attn_book.data import Vocab, tokenize
from attn_book.metrics import bleu, exact_match
from attn_core import attention_with_weights
from attn_core.decode import Sampler, top_k, top_p
from attn_core.positions import Sinusoidal, sinusoidal
from tests.hostile import models, tensors
from tests.hostile.tensors import inputs, numbers, whole
from tests.properties.mechanisms import MECHANISMS


def near(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    return True


def every_mechanism(**others):
    """Each mechanism's name, and what it gives for these inputs."""
    for name, mechanism in MECHANISMS.items():
        given = inputs(**others)
        if mechanism.draws.get("shared"):
            given["q"] = given["k"]
        yield name, mechanism.made_for(**given)(**given)


def test_every_mechanism_takes_a_batch_of_none():
    for name, found in every_mechanism(q=numbers(0, 4, 3, 8), k=numbers(0, 2, 3, 8), v=numbers(0, 2, 3, 6)):
        assert found.shape[0] == 0 and found.shape[2:] == (3, 6), name


def test_every_mechanism_takes_values_of_no_size():
    for name, found in every_mechanism(v=numbers(2, 4, 3, 0), k=numbers(2, 4, 3, 8)):
        assert found.shape == (2, 4, 3, 0), name


def test_nan_that_nobody_sees_stays_unseen():
    v = numbers(2, 2, 3, 6).fill_(math.nan)
    assert not attention_with_weights(**inputs(v=v, mask=torch.zeros(3, 3, dtype=torch.bool)))[0].any()


def test_huge_scores_give_no_nan():
    given = inputs(q=numbers(2, 4, 3, 8) * 1e15, k=numbers(2, 2, 3, 8) * 1e15)
    assert attention_with_weights(**given)[0].isfinite().all()


def test_positions_of_none_and_a_thousand_million():
    assert sinusoidal(0, 4).shape == (0, 4)
    far = Sinusoidal(2)(torch.zeros(1, 1, 2), 10**9)[0, 0]
    assert near(far, torch.tensor([math.sin(1e9), math.cos(1e9)]))


def test_online_softmax_of_nothing():
    assert attn_core.OnlineSoftmax((0,), 4).out().shape == (0, 4)
    state = attn_core.OnlineSoftmax((2,), 3)
    state.add(torch.full((2, 4), -math.inf), numbers(4, 3))
    assert not state.out().any() and state.logsumexp().tolist() == [-math.inf] * 2
    attn_core.OnlineSoftmax((2,), 0).add(numbers(2, 1), numbers(1, 0))


def test_scores_of_empty_sentences():
    assert bleu([[]], [["a"]]) == 0.0 and exact_match([[], ["a"]], [[], ["a"]]) == 1.0
    assert alignment_error([torch.zeros(1, 2)], [[(0, 0)]]) == 1.0


def test_sampling_at_its_limits():
    logits = torch.tensor([[1.0, 2.0, -math.inf]])
    assert torch.equal(top_k(logits, 10**6), logits) and torch.equal(top_p(logits, 1), logits)
    assert Sampler(temperature=1e-300)(logits).tolist() == [1]
    assert Sampler(top_p=1e-300, top_k=1)(logits).tolist() == [1]


def test_rows_that_are_padding_but_for_one_token():
    source = tensors.ids(2, 3)
    out = models.READER(source, whole(3, 1))
    assert near(out[1, 0], models.READER(source[1:, :1], whole(1))[0, 0])
    states, mask = models.MODEL.encode(source, whole(3, 0))  # a sentence of none is all padding
    assert states.isfinite().all() and mask.sum().item() == 3


def test_any_text_is_a_word_but_for_the_names_of_special_tokens():
    words = ["</script>", "<!--", "&amp;", "<EOS>", "שלום", "e\u0301", "é", "\0", " ", "\u202e", "\ud800", "𝔸"]
    vocab = Vocab([words])
    assert vocab.decode(vocab.encode(words)) == words and len(vocab) == 4 + len(words)
    for name in Vocab.SPECIALS:
        assert Vocab([words, [name]]).encode(["<!--", name]) == [vocab.encode(["<!--"])[0], Vocab.UNK]
    assert tokenize("שלום, עולם") == ("שלום", ",", "עולם") and tokenize("a\0b") == ("a", "\0", "b")
    assert tokenize("\ufeffHi\r\nyou") == ("hi", "you") and tokenize(" \u200b\n") == ()
