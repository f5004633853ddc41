import copy
import math
import random
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attn_core import attention, device, masks
from attn_core.cache import (
    BlockPool,
    BlockTables,
    KVCache,
    as_tensors,
    gathered_attention,
    paged,
    paged_attention,
)
from tests import reference

HEADS = {"one key head a query head": (4, 4), "grouped": (4, 2), "multi-query": (4, 1)}
CLOSE = 2 * reference.tolerance(torch.float32)


def nan_pool(num_blocks, block_size, groups, size, value_size=None, dtype=torch.float32):
    """A pool in which reading what was never written shows."""
    pool = BlockPool(num_blocks, block_size, groups, size, dtype=dtype)
    pool.keys.fill_(math.nan)
    pool.values = pool.keys.new_full((num_blocks, groups, block_size, value_size or size), math.nan)
    return pool


def flat(x):
    """(B, G, T, D) as ``BlockPool.write`` takes it."""
    return x.transpose(1, 2).flatten(0, 1)


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


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("block_size", [1, 3, 16, 64])
def test_step_by_step_it_equals_the_contiguous_cache(block_size, heads):
    """A prompt in chunks, ragged ones too, then one token at a time."""
    (num_heads, groups), batch = HEADS[heads], 3
    cache = KVCache(batch, groups, 90, 8, value_dim=5)
    tables = BlockTables(-(-90 // block_size) * batch, block_size)
    pool = nan_pool(tables.num_blocks, block_size, groups, 8, 5)
    rows = [tables.add_sequence() for _ in range(batch)]
    for new in [[30, 30, 30], [1, 17, 0], [20, 3, 8], *[[1, 1, 1]] * 5]:
        tokens = max(new)
        q, k, v = (torch.randn(batch, n, tokens, d) for n, d in ((num_heads, 8), (groups, 8), (groups, 5)))
        before = cache.lengths
        keys, values = cache.append(k, v, torch.tensor(new))
        slots, copies = tables.append_all(dict(zip(rows, new, strict=True)))
        assert copies == []
        true = masks.length_mask(torch.tensor(new), tokens).flatten()
        pool.write(slots, flat(k)[true], flat(v)[true])
        wanted = attention(q, keys, values, mask=masks.causal(tokens, keys.shape[2], before))
        # Here a row's new tokens come first, with padding behind; there they come last.
        turned = torch.stack([q[b].roll(tokens - new[b], dims=1) for b in range(batch)])
        out = paged_attention(turned, pool.keys, pool.values, *as_tensors(tables, rows))
        for b in range(batch):
            if new[b]:
                assert (out[b, :, -new[b] :] - wanted[b, :, : new[b]]).abs().max() < CLOSE
    assert torch.isfinite(out).all()


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
    out = paged_attention(q, pool.keys, pool.values, table, lengths, scale=0.3)
    assert (out - expected(q, k, v, [5, 9], scale=0.3)).abs().max() < CLOSE
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(paged_attention(q, pool.keys, pool.values, table, lengths), wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions_keep_their_dtype_and_their_accuracy(dtype):
    q, k, v = inputs(4, 2, 3, [33, 70], dtype=dtype)
    pool, *where = scattered(k, v, [33, 70], 4)
    out = paged_attention(q, pool.keys, pool.values, *where)
    assert out.dtype == dtype
    assert (out.double() - expected(q, k, v, [33, 70])).abs().max() < reference.tolerance(dtype)


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


class Sequences:
    """Sequences in a pool, each beside a contiguous cache of its own."""

    def __init__(self, num_blocks, block_size, groups, size):
        self.tables, self.pool = BlockTables(num_blocks, block_size), nan_pool(num_blocks, block_size, groups, size)
        self.caches, self.shape = {}, (groups, size)

    def add_sequence(self):
        sequence = self.tables.add_sequence()
        self.caches[sequence] = KVCache(1, self.shape[0], 99, self.shape[1])
        return sequence

    def fork(self, sequence, tokens=None):
        child = self.tables.fork(sequence)
        self.tables.truncate(child, self.tables.length(child) if tokens is None else tokens)
        self.caches[child] = copy.deepcopy(self.caches[sequence])
        self.caches[child].truncate(torch.tensor([self.tables.length(child)]))
        return child

    def append(self, growth):
        placed = self.tables.append_all(growth)
        new = [torch.randn(2, 1, self.shape[0], tokens, self.shape[1]) for tokens in growth.values()]
        for sequence, both in zip(growth, new, strict=True):
            self.caches[sequence].append(*both)
        self.pool.copy(placed.copies)
        k, v = torch.cat([flat(k) for k, _ in new]), torch.cat([flat(v) for _, v in new])
        self.pool.write(torch.tensor(placed.slots), k, v)
        return placed

    def check(self, *sequences):
        """All at once, one query each, against each one's own cache."""
        q = torch.randn(len(sequences), 4, 1, self.shape[1])
        out = paged_attention(q, self.pool.keys, self.pool.values, *as_tensors(self.tables, sequences))
        for row, sequence in enumerate(sequences):
            cache = self.caches[sequence]
            wanted = attention(q[[row]], *(x[:, :, : cache.longest] for x in (cache.keys, cache.values)))
            assert (out[[row]] - wanted).abs().max() < CLOSE

    def bytes(self, blocks):
        return self.pool.keys[blocks].clone(), self.pool.values[blocks].clone()


@pytest.mark.parametrize("block_size", [3, 4])
def test_branches_of_a_fork_go_their_own_ways(block_size):
    all_of = Sequences(12, block_size, 2, 8)
    a = all_of.add_sequence()
    all_of.append({a: 10})
    b, c = all_of.fork(a), all_of.fork(a, 5)
    all_of.check(a, b, c)
    shared, before = all_of.tables.table(b), all_of.bytes(all_of.tables.table(b))
    copies = all_of.append({c: 1, a: 1}).copies
    assert len(copies) == 2
    assert all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(before, all_of.bytes(shared), strict=True))
    for step in ({b: 1, c: 1}, {a: 4, b: 3}, {c: 2}):
        all_of.append(step)
        all_of.check(a, b, c)
    assert all_of.tables.table(a)[:2] == all_of.tables.table(b)[:2], "what came before is still shared"


def test_freed_blocks_serve_other_sequences():
    all_of = Sequences(6, 4, 2, 8)
    a, b = all_of.add_sequence(), all_of.add_sequence()
    all_of.append({a: 9, b: 6})
    left = all_of.tables.table(a)
    all_of.tables.free(a)
    c = all_of.add_sequence()
    all_of.append({c: 5})
    all_of.append({b: 8, c: 2})
    assert set(left) & set(all_of.tables.table(c)) and set(left) & set(all_of.tables.table(b))
    all_of.check(b, c)


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


S = torch.zeros(2, 1, 3)
POOL = torch.zeros(4, 2, 3, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: BlockPool(0, 1, 1, 1), "num_blocks: expected an integer of at least 1, got 0"),
        (lambda p: p.write([(0, 1)], S, S), r"k: expected shape \(1, 1, 3\), one row a slot, got .*\(2, 1, 3\)"),
        (lambda p: p.write([(0, 1)] * 2, S, S[:, :, :2]), r"v: expected shape \(2, 1, 3\)"),
        (
            lambda p: p.write([(0, 1)] * 2, S.double(), S),
            "k: expected the pool's torch.float32 on cpu, got torch.float64",
        ),
        (lambda p: p.write([(0, 1)] * 2, S, S.clone().requires_grad_()), "v: expected no gradient"),
    ],
)
def test_wrong_input_of_a_pool_is_named_and_nothing_is_lost(call, message):
    pool = BlockPool(4, 2, 1, 3)
    pool.keys.fill_(7.0)
    pool.values.fill_(7.0)
    with pytest.raises(ValueError, match=f"^{message}"):
        call(pool)
    assert (pool.keys == 7.0).all() and (pool.values == 7.0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(1, 4, 8)}, r"q: expected a floating tensor with 4 axes, got .*\(1, 4, 8\)"),
        ({"q": [1.0]}, "q: expected a floating tensor with 4 axes, got list"),
        ({"q": torch.zeros(1, 3, 1, 8)}, "keys: expected a pool's shape .*, G dividing q's 3 heads, got"),
        ({"q": torch.zeros(1, 4, 1, 6)}, r"keys: expected a pool's shape \(N, G, block_size, 6\)"),
        ({"q": torch.zeros(1, 4, 1, 8, requires_grad=True)}, "q: expected no gradient"),
        ({"q": torch.zeros(2, 4, 1, 8)}, "table: expected 2 rows, as q has, got 1"),
        ({"keys": POOL.long()}, "keys: expected a floating tensor"),
        ({"keys": POOL.double()}, "keys: expected q's torch.float32 on cpu, got torch.float64 on cpu"),
        ({"keys": POOL[:, :0]}, "keys: expected a pool's shape"),
        ({"keys": POOL.clone().requires_grad_()}, "keys: expected no gradient"),
        ({"values": POOL[:3]}, r"values: expected shape \(4, 2, 3, 'Dv'\), as keys, got \(3, 2, 3, 8\)"),
        ({"values": POOL.clone().requires_grad_()}, "values: expected no gradient"),
        ({"table": torch.tensor([0, 1])}, "table: expected an int64 or int32 tensor of 2 axes"),
        ({"table": torch.tensor([[0.0, 1.0]])}, "table: expected an int64 or int32 tensor of 2 axes"),
        ({"table": [[0, 1]]}, "table: expected an int64 or int32 tensor of 2 axes, got list"),
        ({"lengths": torch.tensor([7])}, "lengths: expected lengths from 0 to 6, got 7"),
        ({"lengths": torch.tensor([-1])}, "lengths: expected lengths from 0 to 6, got -1"),
        ({"lengths": torch.tensor([[4]])}, r"lengths: expected shape \(1,\), got \(1, 1\)"),
        ({"lengths": torch.tensor([4.0])}, "lengths: expected an int64 or int32 tensor, got torch.float32"),
        ({"lengths": 4}, "lengths: expected an int64 or int32 tensor, got int"),
        ({"scale": math.nan}, "scale: expected a finite number or None, got nan"),
        ({"scale": "1"}, "scale: expected a finite number or None, got '1'"),
    ],
)
def test_wrong_input_of_the_attention_is_named(change, message):
    right = {"q": torch.zeros(1, 4, 1, 8), "keys": POOL, "values": POOL}
    right |= {"table": torch.tensor([[2, 1]]), "lengths": torch.tensor([4])}
    assert paged_attention(**right).shape == (1, 4, 1, 8)
    with pytest.raises(ValueError, match=f"^{message}"):
        paged_attention(**(right | change))
