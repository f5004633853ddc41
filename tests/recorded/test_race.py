"""The race's masks say what the package's mechanisms see."""

import pytest
import torch
from torch.nn import functional

from attn_core import BlockSelection, LSHAttention, SlidingWindow, attention
from recorded import race, recurrent

TOKENS = 41


def drawn(heads=1):
    torch.manual_seed(0)
    return torch.randn(3, 2, heads, TOKENS, recurrent.HEAD_DIM)


def test_a_window_sees_what_sliding_window_attention_sees():
    q, k, v = drawn()
    mask = race.near(TOKENS, 0)
    assert mask.tril().sum(-1).tolist() == [min(i + 1, race.KEYS_READ) for i in range(TOKENS)]
    wanted = SlidingWindow(race.KEYS_READ - 1)(q, k, v, causal=True)
    assert torch.allclose(attention(q, k, v, mask=mask, causal=True), wanted, atol=1e-6)


@pytest.mark.parametrize("rounds", [1, 2])
def test_hashes_let_the_same_tokens_meet_as_lsh_attention(rounds):
    q, _, v = drawn()
    keys = functional.normalize(q, dim=-1)
    mask = race.hashed(keys, 4, rounds, seed=3)
    seen = mask.sum(-1)
    assert seen.min() == 1 and 4 * (rounds - 1) < seen.max() <= 4 * rounds
    wanted = LSHAttention(bucket_size=4, rounds=rounds, seed=3)(q, q, v, causal=True)
    assert torch.allclose(attention(q, keys, v, mask=mask, causal=True), wanted, atol=1e-5)


def test_without_a_slope_the_blocks_are_those_of_block_selection():
    q, k, v = drawn()
    mask = race.selected(q @ k.mT, 4)
    wanted = BlockSelection(4, selected=1, local=1)(q, k, v, causal=True)
    assert torch.allclose(attention(q, k, v, mask=mask, causal=True), wanted, atol=1e-5)


@pytest.mark.parametrize("kind", race.KINDS)
def test_a_layer_sees_no_later_token(kind):
    torch.manual_seed(0)
    layer, x = race.Layer(kind).eval(), torch.randn(2, 23, recurrent.WIDTH)
    later = torch.cat((x[:, :15], torch.randn(2, 8, recurrent.WIDTH)), 1)
    assert torch.allclose(layer(x)[:, :15], layer(later)[:, :15], atol=1e-5)
    assert not torch.allclose(layer(x)[:, 15:], layer(later)[:, 15:], atol=1e-2)
