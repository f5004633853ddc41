"""What holds for the parts around the mechanisms: softmax with a mask, tiles, global keys, caches."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attn_core import KVCache, MultiHeadAttention, OnlineSoftmax, attend, masks
from attn_core.cache import BlockPool, BlockTables, as_tensors, paged_attention
from attn_core.contract import contract
from attn_core.mechanisms.dense import masked_softmax
from attn_core.mechanisms.window import attend_in_window
from attn_core.positions import ALiBi, Rotary
from tests import reference
from tests.properties.draws import HALVES, broadcastable, calls, examples

UNITS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def number(*parts):
    return torch.Generator().manual_seed(sum(part * 31**i for i, part in enumerate(parts)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALVES], ids=str)
def test_softmax_among_what_is_allowed(dtype):
    @examples(40)
    @given(st.data())
    def check(data):
        shape = tuple(data.draw(st.lists(st.integers(0, 5), min_size=2, max_size=4)))
        seed = data.draw(st.integers(0, 999))
        scores = (data.draw(st.sampled_from([1, 30])) * torch.randn(shape, generator=number(seed))).to(dtype)
        hidden = torch.rand(shape, generator=number(seed, 1)) < data.draw(st.sampled_from([0.0, 0.3, 1.0]))
        scores = scores.masked_fill(hidden, -math.inf)
        mask = torch.rand(data.draw(broadcastable(shape)), generator=number(seed, 2)) < data.draw(
            st.sampled_from([0.0, 0.5, 1.0])
        )
        values = torch.randn(*shape[:-2], shape[-1], 3, generator=number(seed, 3)).to(dtype)
        kept = scores.clone(), mask.clone(), values.clone()
        scores.requires_grad_()
        out, weights = attend(scores, values, mask)
        assert torch.equal(weights, masked_softmax(scores, mask)) and weights.dtype == dtype
        allowed = (mask & (scores != -math.inf)).broadcast_to(shape)
        empty = ~allowed.any(-1)
        sums = weights.double().sum(-1)
        assert (weights >= 0).all() and (weights[~allowed] == 0).all()
        assert (sums[~empty] - 1).abs().le(5 * UNITS[dtype]).all() and (sums[empty] == 0).all()
        assert (out[empty] == 0).all() and torch.isfinite(out).all()
        exact = torch.where(allowed, scores.detach().double(), -math.inf).softmax(-1).nan_to_num(0.0)
        assert (weights - exact).abs().le(UNITS[dtype]).all()
        out.double().square().sum().backward()
        assert torch.isfinite(scores.grad).all() and (scores.grad[~allowed] == 0).all()
        assert all(torch.equal(x.detach(), y) for x, y in zip((scores, mask, values), kept, strict=True))

    check()


@examples(40)
@given(st.data())
def test_tiles_in_any_order_equal_the_whole(data):
    """Cut anywhere, taken in any order; scores hidden, huge, or all hidden in a tile."""
    rows, keys, seed = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 9)), data.draw(st.integers(0, 999))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    scores = data.draw(st.sampled_from([1, 80])) * torch.randn(2, rows, keys, generator=number(seed), dtype=dtype)
    hidden = torch.rand(scores.shape, generator=number(seed, 1)) < data.draw(st.sampled_from([0.0, 0.4, 1.0]))
    scores = scores.masked_fill(hidden, -math.inf)
    values = torch.randn(keys, 3, generator=number(seed, 2), dtype=dtype)
    cuts = sorted(data.draw(st.sets(st.integers(1, keys - 1)))) if keys > 1 else []
    tiles = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, keys], strict=True)]
    online = OnlineSoftmax((2, rows), 3, dtype=dtype)
    for tile in data.draw(st.permutations(tiles)):
        online.add(scores[..., tile].clone(), values[tile])
    wanted, _ = attend(scores.double(), values.double())
    reference.assert_near(online.out(), wanted, 3 * UNITS[dtype])
    torch.testing.assert_close(online.logsumexp().double(), scores.double().logsumexp(-1), rtol=1e-5, atol=1e-5)


@examples(40)
@given(calls(least=1), st.integers(0, 3), st.data())
def test_global_keys_join_the_window(call, size, data):
    """A window of its own for each query, and keys that all see, in one softmax: as one mask says it."""
    seed, (batch, heads, queries, keys) = data.draw(st.integers(0, 999)), call.shape
    global_k = torch.randn(batch, call.k.shape[1], size, call.k.shape[3], generator=number(seed))
    global_v = torch.randn(batch, call.k.shape[1], size, call.v.shape[3], generator=number(seed, 1))
    global_mask = torch.rand(batch, size, generator=number(seed, 2)) < 0.6
    before, after = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    seen_by_all = {"global_k": global_k, "global_v": global_v, "global_mask": global_mask}
    checked = contract(*call.tensors, **call.options)
    found = attend_in_window(checked, before, after, **seen_by_all)
    distance = torch.arange(keys) - torch.arange(queries)[:, None] - (keys - queries)
    near = (distance >= -before) & (distance <= after)
    if call.options["causal"]:
        near &= distance <= 0
    mask, bias = call.options.get("mask"), call.options.get("bias")
    near = near if mask is None else near & mask
    joined = torch.cat(
        [near.broadcast_to(call.shape), global_mask[:, None, None].expand(batch, heads, queries, size)], 3
    )
    if bias is not None:
        none = torch.zeros(batch, heads, queries, size)
        bias = torch.cat([bias.broadcast_to(call.shape).float(), none], 3)
    k, v = torch.cat([call.k, global_k], 2), torch.cat([call.v, global_v], 2)
    wanted, _ = reference.attention(call.q, k, v, mask=joined, bias=bias, scale=call.options["scale"])
    reference.assert_near(found, wanted, 10 * reference.tolerance(torch.float32, scale=call.spread))


@examples(40)
@given(st.data())
def test_paged_attention_reads_what_was_written_and_nothing_else(data):
    """Rows of any length, in blocks that lie anywhere in a pool of NaN, some of them shared."""
    groups, group, size, value_size = (data.draw(st.integers(1, most)) for most in (2, 3, 4, 4))
    block, seed = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 999))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
    tables = BlockTables(30, block)
    pool = BlockPool(30, block, groups, size, dtype=dtype)
    pool.keys.fill_(math.nan)
    pool.values = pool.keys.new_full((30, groups, block, value_size), math.nan)
    rows = {}

    def write(sequence, tokens):
        slots, copies = tables.append_all({sequence: tokens})
        pool.copy(copies)
        new = [
            torch.randn(tokens, groups, n, generator=number(seed, len(rows), tokens)).to(dtype)
            for n in (size, value_size)
        ]
        pool.write(slots, *new)
        rows[sequence] = [torch.cat(pair) for pair in zip(rows[sequence], new, strict=True)]

    for _ in range(data.draw(st.integers(1, 3))):
        sequence = tables.add_sequence()
        rows[sequence] = [torch.empty(0, groups, n, dtype=dtype) for n in (size, value_size)]
        write(sequence, data.draw(st.integers(0, 7)))
        if data.draw(st.booleans(), label="fork"):
            child = tables.fork(sequence)
            rows[child] = rows[sequence]
            write(child, data.draw(st.integers(0, 3)))
            write(sequence, data.draw(st.integers(0, 2)))
    tokens, scale = data.draw(st.integers(0, 3), label="T"), data.draw(st.sampled_from([None, 0.4]))
    q = torch.randn(len(rows), groups * group, tokens, size, generator=number(seed, 7)).to(dtype)
    with torch.no_grad():
        found = paged_attention(q, pool.keys, pool.values, *as_tensors(tables, list(rows)), scale=scale)
    assert found.dtype == dtype and found.shape == (*q.shape[:3], value_size)
    for row, (keys, values) in enumerate(rows.values()):
        k, v = (x.transpose(0, 1)[None] for x in (keys, values))
        wanted, _ = reference.attention(q[row : row + 1], k, v, causal=True, scale=scale)
        new = max(0, tokens - len(keys))  # queries in front of the row's first token mean nothing
        reference.assert_near(found[row, :, new:], wanted[0, :, new:], 4 * UNITS[dtype])


@pytest.mark.parametrize("positions", [None, Rotary(4), ALiBi(4)], ids=["none", "rotary", "alibi"])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_a_sequence_cut_into_calls_equals_the_whole(positions, num_kv_heads):
    """Through a cache, each row cut where it likes: calls of 0, 1 or more tokens, padded to the longest."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(16, 4, num_kv_heads=num_kv_heads, positions=positions)

    @examples(25)
    @given(st.data())
    def check(data):
        batch, seed = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 999))
        x = torch.randn(batch, 7, 16, generator=number(seed))
        cache, done = KVCache(batch, num_kv_heads, 7, 4), torch.zeros(batch, dtype=torch.long)
        out = torch.zeros_like(x)
        with torch.no_grad():
            whole = layer(x, causal=True)
            while (done < 7).any():
                left = (7 - done).tolist()
                counts = torch.tensor([data.draw(st.integers(0, most), label="tokens") for most in left])
                if not counts.any():
                    counts = torch.tensor(left)
                piece = torch.full((batch, int(counts.max()), 16), 9.0)  # what stands in padding
                for row, count in enumerate(counts.tolist()):
                    piece[row, :count] = x[row, done[row] : done[row] + count]
                found = layer(piece, causal=True, cache=cache, lengths=counts)
                for row, count in enumerate(counts.tolist()):
                    out[row, done[row] : done[row] + count] = found[row, :count]
                done += counts
        assert torch.equal(cache.lengths, done) and (out - whole).abs().max() < 1e-5

    check()


@examples(40)
@given(st.data())
def test_masks_say_what_they_say(data):
    lengths = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    size = data.draw(st.integers(max(lengths), 8))
    dtype = data.draw(st.sampled_from([torch.int64, torch.int32]))
    padding = masks.padding(torch.tensor(lengths, dtype=dtype), size)
    assert padding.tolist() == [[[[j < length for j in range(size)]]] for length in lengths]
    queries, keys = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
    causal = [[j <= i + keys - queries for j in range(keys)] for i in range(queries)]
    assert masks.causal(queries, keys).tolist() == causal
    offsets = torch.tensor(lengths)
    each = [[[[j <= i + offset for j in range(keys)] for i in range(queries)]] for offset in lengths]
    assert masks.causal(queries, keys, offsets).tolist() == each
