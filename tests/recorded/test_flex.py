"""The variants of the recorded compilation: uncompiled, each is the mechanism whose name it has."""

import warnings
from functools import partial

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from attn_core import Dense, SlidingWindow, attention, masks
from recorded import flex

WANTED = {
    "causal": attention,
    "window": SlidingWindow(9),
    "documents": partial(attention, mask=masks.same_group(torch.arange(64)[None] // 16)),
    "soft cap": Dense(soft_cap=2.0),
}


@pytest.mark.parametrize("name", WANTED)
def test_a_variant_is_what_it_is_called(name):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 64, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a call that is not compiled
        found = flex.variants(q, k, v, window=9, document=16, cap=2.0)[name](flex_attention)
    torch.testing.assert_close(found, WANTED[name](q, k, v, causal=True), rtol=1e-4, atol=1e-5)
