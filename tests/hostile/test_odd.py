"""Inputs that are odd but legitimate, with what has to come out."""

import math

import pytest
import torch

import attn_core
from attn_book.alignment import alignment_error
from attn_book.data import Vocab, tokenize
from attn_book.metrics import bleu, exact_match
from attn_book.train import cosine
from attn_core import KVCache, MultiHeadAttention, attention, attention_with_weights, masks
from attn_core.cache import BlockPool, OutOfBlocks, as_tensors, paged_attention
from attn_core.decode import Sampler, generate, top_k, top_p
from attn_core.positions import ALiBi, Sinusoidal, sinusoidal
from tests.hostile import models, tensors
from tests.hostile.tensors import filled, inputs, numbers, read, started, whole
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


def test_every_mechanism_takes_one_token():
    for name, found in every_mechanism(q=numbers(1, 4, 1, 8), k=numbers(1, 2, 1, 8), v=numbers(1, 2, 1, 6)):
        if not name.startswith(("Linformer", "SinkAttention")):  # a slot scales it, a sink takes a part of the weight
            heads = found.shape[1]
            assert near(found, numbers(1, 2, 1, 6).repeat_interleave(heads // 2, 1)), name


def test_no_keys_give_zeros_and_no_queries_nothing():
    assert not attention(**inputs(k=numbers(2, 2, 0, 8), v=numbers(2, 2, 0, 6))).any()
    assert attention(**inputs(q=numbers(2, 4, 0, 8))).shape == (2, 4, 0, 6)


def test_of_more_queries_than_keys_the_first_see_nothing():
    out = attention(**inputs(q=numbers(2, 4, 5, 8), causal=True))
    assert not out[:, :, :2].any() and out[:, :, 2:].all(-1).any()


def test_minus_infinity_in_a_bias_hides_as_a_mask_does():
    mask = torch.tensor([[True, False, True], [False, True, True], [False, False, False]])
    bias = torch.zeros(3, 3).masked_fill(~mask, -math.inf)
    for mechanism in (attention, attn_core.flash_attention, lambda **given: attention_with_weights(**given)[0]):
        assert near(mechanism(**inputs(bias=bias)), mechanism(**inputs(mask=mask)))
        assert not mechanism(**inputs(bias=bias))[:, :, 2].any()


def test_nan_that_nobody_sees_stays_unseen():
    v = numbers(2, 2, 3, 6).fill_(math.nan)
    assert not attention_with_weights(**inputs(v=v, mask=torch.zeros(3, 3, dtype=torch.bool)))[0].any()


def test_huge_scores_give_no_nan():
    given = inputs(q=numbers(2, 4, 3, 8) * 1e15, k=numbers(2, 2, 3, 8) * 1e15)
    assert attention_with_weights(**given)[0].isfinite().all()


def test_a_scale_of_0_is_a_mean_and_a_negative_one_turns_the_order_round():
    out = attention(**inputs(scale=0))
    assert near(out, numbers(2, 2, 3, 6).mean(2, keepdim=True).repeat_interleave(2, 1).expand_as(out))
    assert near(attention(**inputs(scale=-0.5)), attention(**inputs(q=-numbers(2, 4, 3, 8), scale=0.5)))


def test_lengths_of_both_dtypes_from_0_to_the_full_size():
    for dtype in (torch.int32, torch.int64):
        assert masks.length_mask(torch.tensor([0, 3], dtype=dtype), 3).tolist() == [[False] * 3, [True] * 3]
    assert masks.length_mask(whole(), 3).shape == (0, 3) and masks.causal(0, 3).shape == (0, 3)


def test_positions_of_none_and_a_thousand_million():
    assert sinusoidal(0, 4).shape == (0, 4)
    far = Sinusoidal(2)(torch.zeros(1, 1, 2), 10**9)[0, 0]
    assert near(far, torch.tensor([math.sin(1e9), math.cos(1e9)]))


def test_a_call_that_fails_leaves_the_cache_as_it_was():
    layer, x = MultiHeadAttention(8, 2, positions=ALiBi(2)), numbers(2, 2, 8)
    for lengths in ((2, 2), (2, 1)):
        wanted = read(layer, x, filled(lengths=lengths))
        cache = filled(lengths=lengths)
        for wrong in ({"mask": torch.ones(2, 2)}, {"bias": numbers(2, 9)}, {"bias": numbers(4) > 0}, {"mask": [True]}):
            with pytest.raises(ValueError):
                read(layer, x, cache, **wrong)
            assert cache.lengths.tolist() == list(lengths)
        assert torch.equal(read(layer, x, cache), wanted)


def test_a_cache_takes_no_tokens_and_rows_twice():
    cache = filled()
    k, _ = cache.append(numbers(2, 2, 0, 4), numbers(2, 2, 0, 4))
    assert k.shape == (2, 2, 2, 4) and cache.lengths.tolist() == [2, 2]
    second = cache.keys[1]
    cache.reorder(whole(1, 1))
    assert torch.equal(cache.keys[0], second)
    assert KVCache(1, 1, 1, 1).longest == 0


def test_too_few_blocks_change_nothing():
    tables = started(2, 3)
    before = str(vars(tables))
    for growth in ({0: 9}, {1: 1, 0: 7}):
        with pytest.raises(OutOfBlocks):
            tables.append_all(growth)
    assert str(vars(tables)) == before and tables.append(0, 0).slots == []


def test_a_paged_row_of_no_tokens_gives_zeros():
    tables, pool = started(3, 0), BlockPool(4, 2, 2, 8)
    pool.keys.fill_(math.nan), pool.values.fill_(math.nan)
    slots = [(block, at) for block in tables.table(0) for at in (0, 1)][:3]
    pool.write(slots, numbers(3, 2, 8), numbers(3, 2, 8))
    out = paged_attention(numbers(2, 2, 1, 8), pool.keys, pool.values, *as_tensors(tables, [0, 1]))
    k = numbers(3, 2, 8).transpose(0, 1)[None]
    assert near(out[:1], attention(numbers(2, 2, 1, 8)[:1], k, k)) and not out[1].any()
    pool.copy([]), pool.write([], numbers(0, 2, 8), numbers(0, 2, 8))


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


def test_prompts_of_any_length_in_one_batch():
    prompts = [[4], [4, 5, 6, 4, 5, 6], [6]]
    together = generate(models.WRITER, prompts, max_new_tokens=3)
    alone = [generate(models.WRITER, [prompt], max_new_tokens=3)[0] for prompt in prompts]
    assert [found.ids for found in together] == [found.ids for found in alone]


def test_a_schedule_of_one_step():
    assert cosine(1, peak=2.0, warmup=0.0)(0) == 2.0


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
