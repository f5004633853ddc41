"""Rows of single tokens against rows of sequences."""

import pytest
import torch

from attn_core.cache import BlockPool, BlockTables, PackedKVCache, StreamingWindow
from attn_core.mechanisms.dense import Dense, attention
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Rotary


def cached(layer, tokens, num_blocks=9):
    tables = BlockTables(num_blocks, 3)
    pool = BlockPool(num_blocks, 3, layer.num_kv_heads, layer.head_dim, dtype=torch.float64)
    for store in (pool.keys, pool.values):
        store.fill_(torch.nan)  # in slots that nobody has written
    return tables, pool, [tables.add_sequence() for _ in range(tokens)]


def test_however_the_tokens_are_packed_each_sees_its_own_sequence():
    layer = MultiHeadAttention(8, 4, num_kv_heads=2, positions=Rotary(2)).double()
    texts = [torch.randn(1, count, 8, dtype=torch.float64) for count in (7, 4, 5)]
    expected = [layer(text, causal=True)[0] for text in texts]
    tables, pool, sequences = cached(layer, 3)
    calls = [(0, 4, 0), (3, 0, 1), (1, 0, 2), (3, 0, 1), (0, 0, 1)]
    found = [[] for _ in texts]
    for counts in calls:
        growth = {s: count for s, count in zip(sequences, counts, strict=True) if count}
        tables.append_all(growth)
        tokens = {s: range(tables.length(s) - count, tables.length(s)) for s, count in growth.items()}
        (cache,) = PackedKVCache.for_layers(tables, [pool], tokens)
        rows = torch.cat([texts[sequences.index(s)][0, new.start : new.stop] for s, new in tokens.items()])
        with torch.no_grad():
            out = layer(rows[:, None], causal=True, cache=cache)[:, 0]
        for (s, _), part in zip(tokens.items(), out.split([len(new) for new in tokens.values()]), strict=True):
            found[sequences.index(s)].append(part)
    for parts, whole in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [StreamingWindow(4, 1), StreamingWindow(1, 0), StreamingWindow(5, 4)])
def test_with_a_window_blocks_that_were_dropped_are_not_read(window):
    layer = MultiHeadAttention(8, 4, num_kv_heads=2, positions=Rotary(2)).double()
    text = torch.randn(1, 30, 8, dtype=torch.float64)
    position = torch.arange(30)
    distance = position[:, None] - position
    expected = layer(text, mask=(distance >= 0) & ((distance < window.size) | (position < window.sinks)))[0]
    tables, pool, (sequence,) = cached(layer, 1)
    found, begin = [], 0
    for count in (5, 1, 1, 7, 1, 2, 1, 1, 6, 1, 1, 1, 2):
        tables.append(sequence, count)
        (cache,) = PackedKVCache.for_layers(tables, [pool], {sequence: range(begin, begin + count)}, window=window)
        with torch.no_grad():
            found.append(layer(text[0, begin : begin + count, None], causal=True, cache=cache)[:, 0])
        begin += count
        tables.drop(sequence, window.unseen(begin, 3))
        for block in set(range(9)) - set(tables.table(sequence)):
            pool.keys[block], pool.values[block] = torch.nan, torch.nan
        assert tables.used_blocks <= window.most_blocks(7, 3)
    torch.testing.assert_close(torch.cat(found), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("block_size", [1, 2, 5])
@pytest.mark.parametrize("tokens", [1, 3, 8])
@pytest.mark.parametrize("size", [1, 2, 6, 11])
def test_no_text_holds_more_blocks_than_its_window_says(size, tokens, block_size):
    for sinks in (0, 1, 7):
        window = StreamingWindow(size, sinks)
        held = [
            -(-(length + new) // block_size) - len(window.unseen(length, block_size))
            for length in range(80)
            for new in range(1, tokens + 1)
        ]
        assert max(held) == window.most_blocks(tokens, block_size)


def test_a_mechanism_that_blocks_do_not_have_is_refused_and_attention_is_not():
    x = torch.randn(2, 1, 8, dtype=torch.float64)
    for mechanism, fine in ((Dense(soft_cap=3.0), False), (attention, True), (Dense(dropout=0.2), True)):
        layer = MultiHeadAttention(8, 4, mechanism=mechanism).double()
        tables, pool, (sequence,) = cached(layer, 1)
        tables.append(sequence, 2)
        (cache,) = PackedKVCache.for_layers(tables, [pool], {sequence: range(2)})
        with torch.no_grad():
            if fine:
                layer(x, causal=True, cache=cache)
                with pytest.raises(ValueError, match="cache: expected Dense.. without a soft cap, a mask or a bias"):
                    layer(x, causal=True, cache=cache, mask=torch.ones(1, 2, dtype=torch.bool))
            else:
                with pytest.raises(ValueError, match="cache: expected Dense"):
                    layer(x, causal=True, cache=cache)


def test_tokens_that_are_not_there_are_refused():
    layer = MultiHeadAttention(8, 4)
    tables, pool, (sequence,) = cached(layer, 1)
    tables.append(sequence, 4)
    for tokens in (range(3, 5), range(2, 2), range(0, 4, 2), range(-1, 2)):
        with pytest.raises(ValueError, match="tokens: expected"):
            PackedKVCache.for_layers(tables, [pool], {sequence: tokens})
    with pytest.raises(ValueError, match="sequence: expected one of"):
        PackedKVCache.for_layers(tables, [pool], {sequence + 1: range(1)})
    with pytest.raises(ValueError, match="pools: expected"):
        PackedKVCache.for_layers(
            tables, [BlockPool(len(pool.keys), pool.keys.shape[2] + 1, 4, 2)], {sequence: range(1)}
        )
    for pools, tokens in (([], {sequence: range(1)}), ([pool], {})):
        with pytest.raises(ValueError, match="tokens: expected a pool and a sequence"):
            PackedKVCache.for_layers(tables, pools, tokens)
