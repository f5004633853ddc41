import pytest
import torch

from attn_core import KVCache


def numbered(batch, heads, tokens, size, start=0.0):
    return torch.arange(batch * heads * tokens * size, dtype=torch.float32).view(batch, heads, tokens, size) + start


def test_it_keeps_what_comes_in_order():
    cache = KVCache(2, 3, 7, 4, value_dim=5)
    k, v = numbered(2, 3, 6, 4), numbered(2, 3, 6, 5, start=1000)
    for begin, end in ((0, 2), (2, 3), (3, 6)):
        keys, values = cache.append(k[:, :, begin:end], v[:, :, begin:end])
        assert torch.equal(keys, k[:, :, :end]) and torch.equal(values, v[:, :, :end])
    assert cache.longest == 6 and cache.uniform and cache.lengths.tolist() == [6, 6]


def test_rows_fill_their_own_slots():
    """Against lists, one per row."""
    cache, kept = KVCache(3, 2, 9, 4), [[], [], []]
    draw = torch.Generator().manual_seed(0)
    for lengths in ([3, 0, 1], [2, 2, 2], None, [0, 1, 0], [1, 4, 3]):
        new = torch.randn(3, 2, 4 if lengths else 2, 4, generator=draw)
        keys, values = cache.append(new, -new, None if lengths is None else torch.tensor(lengths))
        for row in range(3):
            kept[row] += list(new[row, :, : 2 if lengths is None else lengths[row]].unbind(1))
        assert keys.shape == (3, 2, max(map(len, kept)), 4)
        for row in range(3):
            assert cache.lengths[row] == len(kept[row])
            assert torch.equal(
                keys[row, :, : len(kept[row])], torch.stack(kept[row], 1) if kept[row] else keys[row, :, :0]
            )
            assert torch.equal(values[row], -keys[row])
    assert cache.lengths.tolist() == [8, 9, 8] and not cache.uniform


def test_unused_slots_hold_finite_numbers():
    cache = KVCache(1, 1, 4, 2)
    cache.append(torch.full((1, 1, 3, 2), torch.nan), torch.full((1, 1, 3, 2), torch.nan), torch.tensor([0]))
    assert torch.isfinite(cache.keys).all(), "padding never enters the store"


def test_bytes_are_those_reserved():
    cache = KVCache(2, 3, 100, 64, value_dim=32, dtype=torch.bfloat16)
    assert cache.nbytes == 2 * 3 * 100 * (64 + 32) * 2
    assert cache.keys.untyped_storage().nbytes() + cache.values.untyped_storage().nbytes() == cache.nbytes


def test_reorder_keeps_the_rows_named():
    cache = KVCache(3, 1, 4, 2)
    k = numbered(3, 1, 3, 2, start=1)
    cache.append(k, -k, torch.tensor([3, 1, 2]))
    cache.reorder(torch.tensor([1, 2, 2]))
    assert cache.lengths.tolist() == [1, 2, 2] and cache.longest == 2 and not cache.uniform, (
        "not the first rows' counts"
    )
    keys, values = cache.append(k[:, :, :1] + 100, k[:, :, :1])
    assert torch.equal(keys[0, 0, :2], torch.cat([k[1, 0, :1], k[0, 0, :1] + 100]))
    assert torch.equal(keys[2, 0], torch.cat([k[2, 0, :2], k[2, 0, :1] + 100]))
    assert torch.equal(values[1, 0], torch.cat([-k[2, 0, :2], k[1, 0, :1]]))
    cache.reorder(torch.tensor([2, 1]))
    assert cache.uniform and cache.longest == 3 and len(cache.lengths) == 2


def test_truncate_forgets_the_end():
    cache = KVCache(2, 1, 4, 2)
    k = numbered(2, 1, 3, 2, start=1)
    cache.append(k, k)
    cache.truncate(torch.tensor([2, 1]))
    keys, _ = cache.append(100 + k[:, :, :1], k[:, :, :1])
    assert torch.equal(keys[0, 0], torch.cat([k[0, 0, :2], 100 + k[0, 0, :1]]))
    assert torch.equal(keys[1, 0, :2], torch.cat([k[1, 0, :1], 100 + k[1, 0, :1]]))


K = torch.zeros(2, 1, 3, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: KVCache(0, 1, 1, 1), "batch_size: expected an integer of at least 1, got 0"),
        (lambda c: KVCache(1, 1, 2.5, 1), "capacity: expected an integer"),
        (lambda c: c.append(K[0], K), r"k: expected shape \(2, 1, T, 4\), got torch.float32 of shape \(1, 3, 4\)"),
        (lambda c: c.append(K, K[..., :3]), r"v: expected shape \(2, 1, T, 4\)"),
        (lambda c: c.append(K, K[:, :, :2]), "v: expected 3 tokens, as many as k, got 2"),
        (lambda c: c.append(K.double(), K.double()), "k: expected the cache's torch.float32 on cpu, got torch.float64"),
        (lambda c: c.append(K.clone().requires_grad_(), K), "k: expected no gradient"),
        (lambda c: c.append(K, K, torch.tensor([1, 4])), "lengths: expected lengths from 0 to 3, got 4"),
        (lambda c: c.append(K, K, torch.tensor([1])), r"lengths: expected shape \(2,\), got \(1,\)"),
        (lambda c: c.append(K, K, [1, 2]), "lengths: expected an int64 or int32 tensor, got list"),
        (lambda c: c.append(K, K), "k: expected at most 4 tokens a row, the cache's capacity, got 5 with the 2"),
        (lambda c: c.reorder(torch.tensor([0, 2])), r"rows: expected rows from 0 to 1, at least one, got \[0, 2\]"),
        (lambda c: c.reorder([0]), "rows: expected an int64 or int32 tensor"),
        (lambda c: c.reorder(torch.tensor([], dtype=torch.long)), "rows: expected rows from 0 to 1, at least one"),
        (lambda c: c.truncate(torch.tensor([2, 2])), r"lengths: expected at most \[2, 1\] tokens, got \[2, 2\]"),
        (lambda c: c.truncate(torch.tensor([2])), r"lengths: expected at most \[2, 1\] tokens"),
    ],
)
def test_wrong_input_is_named_and_nothing_is_lost(call, message):
    cache = KVCache(2, 1, 4, 4)
    cache.append(K[:, :, :2] + 1, K[:, :, :2] + 2, torch.tensor([2, 1]))
    keys, values = cache.keys.clone(), cache.values.clone()
    with pytest.raises(ValueError, match=f"^{message}"):
        call(cache)
    assert torch.equal(cache.keys, keys) and torch.equal(cache.values, values)
    assert cache.lengths.tolist() == [2, 1] and cache.longest == 2


def test_truncate_keeps_a_copy_of_the_lengths():
    cache, lengths = KVCache(2, 1, 4, 3), torch.tensor([1, 1])
    cache.append(torch.zeros(2, 1, 3, 3), torch.zeros(2, 1, 3, 3))
    cache.truncate(lengths)
    lengths.fill_(3)
    assert cache.lengths.tolist() == [1, 1]


def test_reserved_room_leaves_what_is_held():
    cache = KVCache(2, 3, 4, 5, value_dim=6)
    k, v = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 6)
    cache.append(k, v, torch.tensor([3, 2]))
    cache.reserve(1)
    assert cache.capacity == 4, "there is room already"
    cache.reserve(2)
    assert cache.capacity == 8, "at least twice the room, so that token by token few copies are made"
    cache.reserve(9)
    assert cache.capacity == 16 and cache.lengths.tolist() == [3, 2] and cache.longest == 3 and not cache.uniform
    keys, values = cache.append(-k, -v)
    assert torch.equal(keys[0], torch.cat([k[0, :, :3], -k[0]], 1))
    assert torch.equal(values[1, :, :6], torch.cat([v[1, :, :2], -v[1]], 1))
    cache = KVCache(1, 1, 2, 3)
    cache.reserve(11)
    assert cache.capacity == 11
