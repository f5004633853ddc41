"""The recorded run of caches in few bits: what its rounding and its rotation do to random heads."""

import pytest
import torch

from attn_core import attention
from recorded.cache_bits import BLOCK, CHANNEL, SCHEMES, TOKEN, Rounded, Scheme, hadamard, integers


@pytest.fixture
def heads():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, number, 70, 64, generator=generator) for number in (6, 2, 2)]


@pytest.mark.parametrize("group", [BLOCK, TOKEN, CHANNEL])
@pytest.mark.parametrize("zero", [False, True])
def test_an_entry_is_off_by_at_most_half_its_group_s_scale(heads, group, zero):
    x = heads[1][:, :, :64]
    groups = integers(x, 4, group, zero).sub(x).abs().unflatten(3, (-1, group[1])).unflatten(2, (-1, group[0]))
    own = x.unflatten(3, (-1, group[1])).unflatten(2, (-1, group[0]))
    width = own.amax((3, 5)) - own.amin((3, 5)) if zero else own.abs().amax((3, 5))
    assert (groups.amax((3, 5)) <= width / (15 if zero else 7) / 2 + 1e-5).all()


def test_an_unfinished_group_changes_nothing_before_it(heads):
    x = heads[1]
    torch.testing.assert_close(integers(x, 4, BLOCK, False)[:, :, :64], integers(x[:, :, :64], 4, BLOCK, False))
    assert integers(x, 4, BLOCK, False).shape == x.shape


def test_bits_count_scales_and_zero_points():
    assert SCHEMES["INT4, token"].stored_bits == 4.25
    assert SCHEMES["INT4, half token, zero point"].stored_bits == 5
    assert SCHEMES["INT4, keys by channel"].stored_bits == 4 + (16 / 32 + 16 / 64) / 2
    assert SCHEMES["FP8 E4M3"].stored_bits == 8


def test_a_rotation_changes_nothing_but_the_rounding(heads):
    turn = hadamard(64)
    torch.testing.assert_close(turn @ turn.mT, torch.eye(64))
    fine = Rounded(Scheme(16, rotated=True))(*heads, causal=True)
    torch.testing.assert_close(fine, attention(*heads, causal=True), atol=1e-3, rtol=1e-3)


def test_a_rotation_helps_where_a_channel_is_large(heads):
    q, k, v = heads
    k = k + 20 * (torch.arange(64) == 3)
    exact = attention(q, k, v, causal=True)
    plain, rotated = ((Rounded(Scheme(4, rotated=r))(q, k, v, causal=True) - exact).norm() for r in (False, True))
    assert rotated < 0.7 * plain


def test_a_mask_is_refused(heads):
    with pytest.raises(ValueError, match="causal"):
        Rounded(SCHEMES["FP8 E4M3"])(*heads, mask=torch.ones(70, 70, dtype=torch.bool), causal=True)
