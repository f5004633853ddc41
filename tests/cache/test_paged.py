import math
import random
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attn_core import device
from attn_core.cache import BlockPool, BlockTables, as_tensors, gathered_attention, paged, paged_attention
from tests import reference

HEADS = {"one key head a query head": (4, 4), "grouped": (4, 2), "multi-query": (4, 1)}
CLOSE = 2 * reference.tolerance(torch.float32)


def nan_pool(num_blocks, block_size, groups, size, value_size=None, dtype=torch.float32):
    """A pool in which reading what was never written shows."""
    pool = BlockPool(num_blocks, block_size, groups, size, dtype=dtype)
    pool.keys.fill_(math.nan)
    pool.values = pool.keys.new_full((num_blocks, groups, block_size, value_size or size), math.nan)
    return pool


def scattered(k, v, lengths, block_size, spare=3):
    """The first tokens of each row of k and v in blocks that were handed out in a random order."""
    total = sum(-(-length // block_size) for length in lengths)
    tables = BlockTables(total + spare, block_size)
    pool = nan_pool(total + spare, block_size, *k.shape[1::2], v.shape[3], k.dtype)
    draw = random.Random(0)
    held = [tables.add_sequence() for _ in range(total + spare)]
    for sequence in held:
        tables.append(sequence, 1)
    for sequence in draw.sample(held, len(held)):
        tables.free(sequence)
    rows, turns = [tables.add_sequence() for _ in lengths], [row for row, n in enumerate(lengths) for _ in range(n)]
    draw.shuffle(turns)
    for row in turns:
        i = tables.length(rows[row])
        placed = tables.append(rows[row], 1)
        pool.write(placed.slots, k[row, :, i][None], v[row, :, i][None])
    return pool, *as_tensors(tables, rows)


def inputs(heads, groups, tokens, lengths, size=8, value_size=5, dtype=torch.float32):
    batch, longest = len(lengths), max(lengths, default=0)
    draw = torch.Generator().manual_seed(7)
    q = torch.randn(batch, heads, tokens, size, generator=draw)
    k = torch.randn(batch, groups, longest, size, generator=draw)
    v = torch.randn(batch, groups, longest, value_size, generator=draw)
    return [x.to(dtype) for x in (q, k, v)]


def expected(q, k, v, lengths, **options):
    """Row by row, in float64 loops, causal: aligned at the row's end."""
    found = [
        reference.attention(q[b : b + 1], k[b : b + 1, :, :n], v[b : b + 1, :, :n], causal=True, **options)[0]
        for b, n in enumerate(lengths)
    ]
    return torch.cat(found)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("block_size", [1, 3, 16])
@pytest.mark.parametrize("tokens", [1, 4])
def test_it_equals_the_reference(block_size, heads, tokens):
    lengths = [7, 19, 0, 3, 16, 2]
    q, k, v = inputs(*HEADS[heads], tokens, lengths)
    pool, table, counts = scattered(k, v, lengths, block_size)
    assert counts.tolist() == lengths
    out = paged_attention(q, pool.keys, pool.values, table, counts)
    assert out.shape == (6, 4, tokens, 5)
    assert (out - expected(q, k, v, lengths)).abs().max() < CLOSE
    assert (gathered_attention(q, pool.keys, pool.values, table, counts) - out).abs().max() < CLOSE, "the plain form"
    assert not out[2].any(), "a row of length 0 gets zeros"
    if tokens == 4:
        assert not out[5, :, :2].any() and out[5, :, 2:].all(), "so do queries in front of a row's first token"


@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("heads", HEADS)
def test_tiles_change_nothing(monkeypatch, heads, tokens):
    """Many tiles, and rows that end in each of them; many tiles of queries."""
    lengths = [1, 40, 12, 41, 8, 27]
    q, k, v = inputs(*HEADS[heads], tokens, lengths)
    pool, *where = scattered(k, v, lengths, 2)
    wanted = expected(q, k, v, lengths)
    for tile in (1, 2**8, 2**10):
        monkeypatch.setattr(paged, "_TILE", tile)
        monkeypatch.setattr(paged, "_QUERY_TILE", 3)
        assert (paged_attention(q, pool.keys, pool.values, *where) - wanted).abs().max() < CLOSE
    monkeypatch.setattr(device, "TILED", ())
    assert (paged_attention(q, pool.keys, pool.values, *where) - wanted).abs().max() < CLOSE


@pytest.mark.parametrize("tiled", [("cpu",), ()])
def test_what_is_not_used_may_hold_anything(monkeypatch, tiled):
    monkeypatch.setattr(device, "TILED", tiled)
    lengths = [5, 12, 0]
    q, k, v = inputs(4, 2, 2, lengths)
    pool, table, counts = scattered(k, v, lengths, 4)
    wanted = paged_attention(q, pool.keys, pool.values, table, counts)
    plain = gathered_attention(q, pool.keys, pool.values, table, counts)
    stale = torch.cat([table, table], 1)
    for b, used in enumerate((2, 3, 0)):
        stale[b, used:] = torch.tensor([-1, 2**40, 0, table[1, 0], -(2**40), 99])[: 6 - used]
    for filler in (math.nan, math.inf, -1e30):
        for store in (pool.keys, pool.values):
            store[~store.isfinite() | (store == -1e30)] = filler
        assert torch.equal(paged_attention(q, pool.keys, pool.values, stale, counts), wanted)
        assert torch.equal(gathered_attention(q, pool.keys, pool.values, stale, counts), plain)


def test_integers_and_layouts_of_other_kinds_give_the_same():
    q, k, v = inputs(4, 2, 3, [5, 9])
    pool, table, lengths = scattered(k, v, [5, 9], 4)
    wanted = paged_attention(q, pool.keys, pool.values, table, lengths)
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)
    kept = [x.clone() for x in (turned, pool.keys, pool.values, table, lengths)]
    assert torch.equal(paged_attention(turned, pool.keys, pool.values, table.int(), lengths.int()), wanted)
    same = zip((turned, pool.keys, pool.values, table, lengths), kept, strict=True)
    assert all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in same), "no input is changed"
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(paged_attention(q, pool.keys, pool.values, table, lengths), wanted)


def test_sums_are_in_float32_even_for_half_precision():
    # 4096 equal weights: a sum kept in bfloat16 stops growing at 256 ones.
    pool = BlockPool(256, 16, 1, 4, dtype=torch.bfloat16)
    pool.keys.zero_()
    pool.values.fill_(1.5)
    q = torch.ones(1, 1, 1, 4, dtype=torch.bfloat16)
    out = paged_attention(q, pool.keys, pool.values, torch.arange(256)[None], torch.tensor([4096]))
    assert torch.equal(out, torch.full_like(out, 1.5))


def test_nothing_asked_nothing_found():
    pool = nan_pool(2, 4, 2, 8)
    for batch, tokens in ((0, 3), (2, 0)):
        table, lengths = torch.zeros(batch, 1, dtype=torch.long), torch.full((batch,), 3)
        assert paged_attention(torch.zeros(batch, 4, tokens, 8), pool.keys, pool.values, table, lengths).numel() == 0


def test_tables_become_tensors():
    tables = BlockTables(9, 2)
    a, b, c = (tables.add_sequence() for _ in range(3))
    tables.append_all({a: 5, c: 2})
    table, lengths = as_tensors(tables, [c, a, b])
    assert table.tolist() == [[3, -1, -1], [0, 1, 2], [-1, -1, -1]] and lengths.tolist() == [2, 5, 0]
    assert table.dtype == lengths.dtype == torch.int64
    table, lengths = as_tensors(tables, [])
    assert table.shape == (0, 0) and lengths.shape == (0,)
    with pytest.raises(ValueError, match="^sequence: expected one of"):
        as_tensors(tables, [a, 7])


def test_copies_are_done_in_turn():
    pool = nan_pool(4, 2, 1, 3)
    pool.write([(0, 0), (0, 1)], torch.ones(2, 1, 3), 2 * torch.ones(2, 1, 3))
    pool.copy([(0, 1), (1, 3)])
    assert torch.equal(pool.keys[3], torch.ones(1, 2, 3)) and torch.equal(pool.values[3], 2 * torch.ones(1, 2, 3))
    assert pool.keys[2].isnan().all()


def test_write_touches_its_slots_only():
    pool = nan_pool(3, 4, 2, 3, 5)
    k, v = torch.randn(2, 2, 3), torch.randn(2, 2, 5)
    pool.write([(2, 1), (0, 3)], k, v)
    assert torch.equal(pool.keys[2, :, 1], k[0]) and torch.equal(pool.values[0, :, 3], v[1])
    assert pool.keys.isfinite().sum() == k.numel() and pool.values.isfinite().sum() == v.numel()
    pool.write([], k[:0], v[:0])


@pytest.mark.parametrize("block", [-1, 3])
def test_a_block_that_does_not_exist_is_refused_and_nothing_changes(block):
    pool = BlockPool(3, 4, 1, 2)
    pool.keys.zero_(), pool.values.zero_()
    message = f"expected blocks from 0 to 2, got {block}"
    with pytest.raises(ValueError, match=f"slots: {message}"):
        pool.write([(0, 0), (block, 0)], torch.ones(2, 1, 2), torch.ones(2, 1, 2))
    with pytest.raises(ValueError, match=f"copies: {message}"):
        pool.copy([(0, 1), (block, 2)])
    assert not pool.keys.any() and not pool.values.any()


class Watch(TorchDispatchMode):
    """Follows the memory of new tensors: the most at once, and the largest, in bytes."""

    def __init__(self, known):
        super().__init__()
        self.live, self.most, self.largest = {}, 0, 0
        self.known = {x.untyped_storage().data_ptr() for x in known}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in self.known:
                self.live[id(x)] = (weakref.ref(x), x.untyped_storage().data_ptr(), x.untyped_storage().nbytes())
        self.live = {key: entry for key, entry in self.live.items() if entry[0]() is not None}
        sizes = {place: size for _, place, size in self.live.values()}
        self.most, self.largest = max(self.most, sum(sizes.values())), max(self.largest, *sizes.values(), 0)
        return out


@pytest.mark.parametrize(("groups", "tokens"), [(4, 1), (1, 1), (4, 300)])
def test_the_cache_is_never_gathered_on_a_cpu(groups, tokens):
    """At 8192 tokens: 32 MiB of keys and values with four key heads, and tiles of 2 MiB."""
    batch, block_size, blocks = 2, 16, 512
    shape = (batch * blocks, groups, block_size, 64)
    keys, values, table = torch.zeros(shape), torch.zeros(shape), torch.randperm(batch * blocks).view(batch, blocks)
    q, lengths = torch.randn(batch, 4, tokens, 64), torch.tensor([8192, 7000])
    assert keys.nbytes + values.nbytes == groups * 2**23
    with Watch((q, keys, values, table, lengths)) as watch:
        paged_attention(q, keys, values, table, lengths)
    kept = 4 * 2 * q.nbytes  # the output, the scaled queries, two tensors of the online softmax
    assert watch.largest == 2**21
    assert watch.most < 2 * 2**21 + kept + 2**16
