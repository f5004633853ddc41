"""The plain form that opens each mechanism's file, beside the fast one: the same outputs and gradients."""

import pytest
import torch

from attn_core import BlockSelection, LSHAttention, Performer, SlidingWindow, flash_attention
from attn_core.mechanisms.block_selection import block_selection_plain
from attn_core.mechanisms.flash import flash_attention_plain
from attn_core.mechanisms.lsh import lsh_attention_plain
from attn_core.mechanisms.performer import performer_plain
from attn_core.mechanisms.window import sliding_window_plain


def inputs(*, queries=11, keys=17, spread=1.0):
    torch.manual_seed(5)
    sizes = (queries, 6), (keys, 6), (keys, 4)
    return [(spread * torch.randn(2, 3, *size, dtype=torch.float64)).requires_grad_() for size in sizes]


def assert_same(plain, fast, tensors):
    one, two = plain(*tensors), fast(*tensors)
    torch.testing.assert_close(one, two)
    direction = torch.randn_like(one)
    gradients = [torch.autograd.grad(out, tensors, direction) for out in (one, two)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("tile", [1, 5, 17, 100])
def test_flash_attention(tile):
    assert_same(lambda q, k, v: flash_attention_plain(q, k, v, tile=tile), flash_attention, inputs())


@pytest.mark.parametrize(("before", "after"), [(0, 0), (3, 0), (2, 5), (30, 30)])
def test_sliding_window(before, after):
    fast = SlidingWindow(before, after)
    assert_same(lambda q, k, v: sliding_window_plain(q, k, v, before, after), fast, inputs())


@pytest.mark.parametrize(("selected", "local"), [(0, 1), (2, 1), (1, 2), (9, 3)])
def test_block_selection(selected, local):
    fast = BlockSelection(3, selected=selected, local=local)
    plain = lambda q, k, v: block_selection_plain(q, k, v, block_size=3, selected=selected, local=local)  # noqa: E731
    assert_same(plain, lambda q, k, v: fast(q, k, v, causal=True), inputs())


@pytest.mark.parametrize("causal", [False, True])
def test_performer(causal):
    fast = Performer(6, 32).double()
    plain = lambda q, k, v: performer_plain(q, k, v, fast.projection, causal=causal)  # noqa: E731
    assert_same(plain, lambda q, k, v: fast(q, k, v, causal=causal), inputs(spread=0.5))


@pytest.mark.parametrize("rounds", [1, 3])
def test_lsh(rounds):
    fast = LSHAttention(bucket_size=4, num_buckets=4, rounds=rounds)
    q, _, v = inputs(queries=17)

    def plain(q, v):
        rows = q.flatten(0, 1)
        out = lsh_attention_plain(rows, v.flatten(0, 1), fast.hash(rows), chunk=fast.bucket_size)
        return out.view_as(v)

    assert_same(plain, lambda q, v: fast(q, q, v), [q, v])
