"""Keys and values in 8 bits: how far they are off, and that a block's scale belongs to what is in it."""

import pytest
import torch

from attn_core import MultiHeadAttention
from attn_core.cache import BlockPool, BlockTables, PackedKVCache, QuantisedBlockPool

BLOCK, HEADS, SIZE = 4, 2, 8


def pool(blocks=6, **options):
    return QuantisedBlockPool(blocks, BLOCK, HEADS, SIZE, **options)


def tokens(count, seed=0, scale=1.0):
    by = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(2, count, HEADS, SIZE, generator=by)).unbind()


def stored(quantised, slots):
    """What the pool holds in these slots: keys and values (N, G, D)."""
    keys, values, numbers = quantised.read(torch.tensor(slots)[:, :1])
    at = numbers[:, 0], slice(None), torch.tensor(slots)[:, 1]
    return keys[at], values[at]


SLOTS = [(block, offset) for block in (4, 1) for offset in range(BLOCK)]


def test_a_block_written_at_once_is_off_by_half_a_scale():
    quantised, (k, v) = pool(), tokens(8)
    quantised.write(SLOTS, k, v)
    all_scales = quantised.key_scales, quantised.value_scales
    for found, given, scales in zip(stored(quantised, SLOTS), (k, v), all_scales, strict=True):
        blocks = given.unflatten(0, (2, BLOCK))
        scale = blocks.abs().amax((1, 3)) / 127  # (2, G)
        assert torch.allclose(scales[[4, 1]], scale)
        off = (found.unflatten(0, (2, BLOCK)) - blocks).abs().amax((1, 3))
        assert (off <= 0.501 * scale).all() and (off > 0.3 * scale).all()


def test_token_by_token_it_is_off_by_half_a_scale_for_each_rounding():
    quantised, (k, v) = pool(), tokens(8)
    for i, slot in enumerate(SLOTS):
        quantised.write([slot], k[i : i + 1], v[i : i + 1])
    for found, given in zip(stored(quantised, SLOTS), (k, v), strict=True):
        scale = given.unflatten(0, (2, BLOCK)).abs().amax((1, 3)).repeat_interleave(BLOCK, 0) / 127
        assert ((found - given).abs().amax(2) <= 0.501 * BLOCK * scale).all()


def test_what_a_block_held_before_does_not_make_it_coarse():
    quantised, (k, v) = pool(), tokens(8)
    quantised.write(SLOTS, 1e4 * k, 1e4 * v)
    quantised.write(SLOTS, k, v)
    assert (stored(quantised, SLOTS)[0] - k).abs().max() < 0.02


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30])
def test_zeros_and_extreme_numbers_stay_finite(scale):
    quantised, (k, v) = pool(), tokens(8, scale=scale)
    quantised.write(SLOTS, k, v)
    found = stored(quantised, SLOTS)[0]
    assert found.isfinite().all() and torch.allclose(found, k, atol=0.02 * scale)


def test_a_copied_block_brings_its_scale():
    quantised, (k, v) = pool(), tokens(4)
    quantised.write(SLOTS[:4], k, v)
    quantised.copy([(4, 0), (0, 2)])
    copied = [(2, offset) for offset in range(BLOCK)]
    for found, wanted in zip(stored(quantised, copied), stored(quantised, SLOTS[:4]), strict=True):
        assert torch.equal(found, wanted)


def test_it_takes_little_more_than_a_byte_a_number():
    numbers = 2 * 6 * BLOCK * HEADS * SIZE
    assert pool().nbytes == numbers + 4 * 2 * 6 * HEADS
    assert BlockPool(6, BLOCK, HEADS, SIZE).nbytes == 4 * numbers


@pytest.mark.parametrize("dtype, most_off", [(torch.float32, 0.02), (torch.bfloat16, 0.03)])
def test_packed_attention_is_that_of_exact_keys_and_values_up_to_rounding(dtype, most_off):
    tables, pools = BlockTables(6, BLOCK), [pool(dtype=dtype), BlockPool(6, BLOCK, HEADS, SIZE, dtype=dtype)]
    rows = {tables.add_sequence(): count for count in (5, 9)}
    tables.append_all(rows)
    caches = PackedKVCache.for_layers(tables, pools, {row: range(count) for row, count in rows.items()})
    k, v = (x[:, :, None].to(dtype) for x in tokens(14))
    q = torch.randn(14, 4, 1, SIZE, generator=torch.Generator().manual_seed(1)).to(dtype)
    layer = MultiHeadAttention(4 * SIZE, 4, num_kv_heads=HEADS)
    rounded, exact = (cache.attend(layer, q, k, v) for cache in caches)
    assert rounded.dtype == dtype and 0 < (rounded - exact).abs().max() < most_off


def test_what_does_not_fit_is_refused():
    quantised, (k, v) = pool(), tokens(8)
    with pytest.raises(ValueError, match=r"k: expected the pool's torch\.float32 on cpu, got torch\.bfloat16"):
        quantised.write(SLOTS, k.bfloat16(), v)
    with pytest.raises(ValueError, match=r"dtype: expected a floating one, .* got torch\.int8"):
        pool(dtype=torch.int8)
