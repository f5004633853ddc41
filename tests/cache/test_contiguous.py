import torch

from attn_core import KVCache


def test_unused_slots_hold_finite_numbers():
    cache = KVCache(1, 1, 4, 2)
    cache.append(torch.full((1, 1, 3, 2), torch.nan), torch.full((1, 1, 3, 2), torch.nan), torch.tensor([0]))
    assert torch.isfinite(cache.keys).all(), "padding never enters the store"


def test_bytes_are_those_reserved():
    cache = KVCache(2, 3, 100, 64, value_dim=32, dtype=torch.bfloat16)
    assert cache.nbytes == 2 * 3 * 100 * (64 + 32) * 2
    assert cache.keys.untyped_storage().nbytes() + cache.values.untyped_storage().nbytes() == cache.nbytes


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
