"""Attention rollout against sums over paths, patches painted over pixel by pixel."""

from itertools import product

import pytest
import torch

from attn_book.attribution import occlude, rollout


def test_rollout_is_the_sum_over_all_paths():
    """What reaches token i from token j: over all ways through the layers, the products of the steps' weights."""
    torch.manual_seed(1)
    maps = torch.rand(2, 3, 2, 4, 4, dtype=torch.float64).softmax(-1)
    found = rollout(maps)
    for n, i, j in product(range(2), range(4), range(4)):
        total = 0.0
        for a, b in product(range(4), repeat=2):  # i, in the highest layer, reads a, which reads b, which reads j
            path = 1.0
            for layer, (reader, read) in enumerate([(b, j), (a, b), (i, a)]):
                weight = (maps[n, layer, 0, reader, read] + maps[n, layer, 1, reader, read]).item() / 2
                path *= (weight + (reader == read)) / 2
            total += path
        assert found[n, i, j].item() == pytest.approx(total, rel=1e-12)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 4, dtype=torch.float64))


@pytest.mark.parametrize(("height", "width", "patch_size"), [(8, 12, 4), (6, 6, 3), (5, 5, 5)])
def test_painted_patches_are_zero_and_the_others_stay(height, width, patch_size):
    torch.manual_seed(2)
    images = torch.rand(3, 2, height, width) + 1
    before = images.clone()
    columns = width // patch_size
    patches = torch.rand(3, height // patch_size * columns) < 0.5
    found = occlude(images, patches, patch_size)
    for n, y, x in product(range(3), range(height), range(width)):
        over = patches[n, y // patch_size * columns + x // patch_size]
        expected = torch.zeros(2) if over else images[n, :, y, x]
        assert torch.equal(found[n, :, y, x], expected)
    assert torch.equal(images, before)
