import random

import pytest
import torch

from attn_core.cache import KVCache, rollback_on_error

GROUPS, SIZE, VALUE_SIZE = 2, 4, 3


def caches_of(layers, batch):
    return [KVCache(batch, GROUPS, 40, SIZE, value_dim=VALUE_SIZE) for _ in range(layers)]


def tokens(batch, count):
    return torch.randn(batch, GROUPS, count, SIZE), torch.randn(batch, GROUPS, count, VALUE_SIZE)


@pytest.mark.parametrize("seed", range(4))
def test_every_layer_holds_what_lists_hold(seed):
    """Random histories of two layers, against a list of tokens for each row."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    caches, held = caches_of(2, 3), [[[] for _ in range(3)] for _ in range(2)]
    for _ in range(25):
        batch, what = len(held[0]), draw.choice(["append", "append", "ragged", "truncate", "reorder"])
        lengths = rows = None
        count = draw.randint(0, 2)
        if what == "truncate":
            lengths = torch.tensor([draw.randint(max(0, len(row) - 3), len(row)) for row in held[0]])
        elif what == "reorder":
            rows = torch.tensor([draw.randrange(batch) for _ in range(draw.randint(1, 4))])
        elif what == "ragged":
            lengths = torch.tensor([draw.randint(0, count) for _ in range(batch)])
        for cache, lists in zip(caches, held, strict=True):
            if what == "truncate":
                cache.truncate(lengths)
                lists[:] = [row[:n] for row, n in zip(lists, lengths.tolist(), strict=True)]
            elif what == "reorder":
                cache.reorder(rows)
                lists[:] = [list(lists[row]) for row in rows.tolist()]
            elif max(map(len, lists)) < 38:
                k, v = tokens(batch, count)
                keys, values = cache.append(k, v, lengths)
                for b, row in enumerate(lists):
                    new = count if lengths is None else int(lengths[b])
                    row += [(k[b, :, t], v[b, :, t]) for t in range(new)]
                assert keys.shape[2] == values.shape[2] == cache.longest
                assert keys.isfinite().all() and values.isfinite().all()
                for b, row in enumerate(lists):
                    for t, (key, value) in enumerate(row):
                        assert torch.equal(keys[b, :, t], key) and torch.equal(values[b, :, t], value)
            counts = [len(row) for row in lists]
            assert cache.lengths.tolist() == counts and cache.longest == max(counts)
            assert cache.uniform == (len(set(counts)) == 1)


def test_an_error_takes_back_what_any_layer_has_added():
    caches = caches_of(3, 2)
    with rollback_on_error(caches):
        for cache in caches:
            cache.append(*tokens(2, 4), torch.tensor([4, 1]))
    before = [cache.append(*tokens(2, 0)) for cache in caches]
    with pytest.raises(KeyboardInterrupt), rollback_on_error(caches):
        caches[0].append(*tokens(2, 3))
        caches[1].append(*tokens(2, 3), torch.tensor([0, 2]))
        raise KeyboardInterrupt
    assert [cache.lengths.tolist() for cache in caches] == [[4, 1]] * 3
    for cache, (keys, values) in zip(caches, before, strict=True):
        keys_now, values_now = cache.append(*tokens(2, 0))
        assert torch.equal(keys_now, keys) and torch.equal(values_now, values)


def test_what_inference_mode_made_goes_on_outside_of_it():
    with torch.inference_mode():
        (cache,) = caches_of(1, 2)
        cache.append(*tokens(2, 30))
        cache.reorder(torch.tensor([1, 0]))
        cache.reserve(20)
    k, v = tokens(2, 1)
    keys, values = cache.append(k, v)
    assert keys.shape[2] == 31 and torch.equal(keys[:, :, 30:], k) and torch.equal(values[:, :, 30:], v)
