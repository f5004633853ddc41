"""What rows share is read once for all of them, and nothing changes."""

import pytest
import torch

from attn_core.cache import BlockPool, BlockTables, PackedKVCache, cascade_attention, packed, paged_attention
from attn_core.multi_head import MultiHeadAttention
from tests import reference


def batch(heads, groups, tokens, lengths, shared, dtype=torch.float32):
    """Rows in blocks of four, the first ``shared`` of which are the same."""
    draw = torch.Generator().manual_seed(5)
    keys, values = (torch.randn(40, groups, 4, size, generator=draw).to(dtype) for size in (8, 5))
    table = torch.randperm(40, generator=draw)[: 8 * len(lengths)].view(len(lengths), 8)
    table[:, :shared] = table[:1, :shared]
    q = torch.randn(len(lengths), heads, tokens, 8, generator=draw).to(dtype)
    return q, keys, values, table, torch.tensor(lengths)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize(
    ("tokens", "lengths", "shared"), [(1, [32, 21, 27], 0), (3, [32, 21, 27], 4), (1, [32] * 3, 8)]
)
def test_it_equals_attention_to_each_row_alone(tokens, lengths, shared, heads, groups, dtype):
    """With no block shared, some, and all of them."""
    given = batch(heads, groups, tokens, lengths, shared, dtype)
    out, plain = cascade_attention(*given, shared, scale=0.7), paged_attention(*given, scale=0.7)
    assert out.dtype == dtype and (out - plain).abs().max() <= 2 * reference.tolerance(dtype)
    mask = torch.rand(len(lengths), tokens, 32) > 0.3
    mask[:, :, : 4 * shared] = True
    out, masked = cascade_attention(*given, shared, mask=mask), paged_attention(*given, mask=mask)
    assert (out - masked).abs().max() <= 2 * reference.tolerance(dtype)
    assert (masked - paged_attention(*given)).abs().max() > 0.01 or shared == 8


@pytest.mark.parametrize("shared", [-1, 3, 7])
def test_blocks_that_not_all_queries_see_and_blocks_that_differ_are_refused(shared):
    with pytest.raises(ValueError, match="^shared: expected"):
        cascade_attention(*batch(4, 2, 2, [32, 25], 2), shared)


def test_sequences_that_begin_alike_attend_together(monkeypatch):
    """Two beginnings of nine tokens, three sequences each, and two on their own."""
    monkeypatch.setattr(packed, "LEAST_SHARED", 8)
    monkeypatch.setattr(packed, "LEAST_SAVED", 18)
    layer, tables = MultiHeadAttention(8, 4, num_kv_heads=2).double(), BlockTables(60, 3)
    pool, sequences = BlockPool(60, 3, 2, 2, dtype=torch.float64), []
    pool.keys.normal_(), pool.values.normal_()
    for count in (9, 9, 2, 10):
        sequences.append(tables.add_sequence())
        tables.append(sequences[-1], count)
    sequences += [tables.fork(one) for one in (0, 1, 0, 1)]
    tables.append_all({one: 1 + one % 3 for one in sequences})
    tokens = {one: range(tables.length(one) - 1, tables.length(one)) for one in sequences}
    x, calls = torch.randn(8, 1, 8, dtype=torch.float64), []

    def counted(q, *rest, shared, **options):
        calls.append((len(q), shared))
        return cascade_attention(q, *rest, shared=shared, **options)

    monkeypatch.setattr(packed, "cascade_attention", counted)
    (cache,) = PackedKVCache.for_layers(tables, [pool], tokens)
    with torch.no_grad():
        out = layer(x, causal=True, cache=cache)
        assert calls == [(3, 3), (3, 3)]
        monkeypatch.setattr(packed, "LEAST_SAVED", 19)
        (cache,) = PackedKVCache.for_layers(tables, [pool], tokens)
        torch.testing.assert_close(out, layer(x, causal=True, cache=cache), rtol=0, atol=1e-12)
    assert len(calls) == 2
