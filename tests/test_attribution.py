"""Attention rollout against sums over paths, patches painted over pixel by pixel."""

from itertools import product

import pytest
import torch

from attn_book.attribution import occlude, rollout
from attn_book.corpus import centred, draw_marked


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


def test_a_marked_object_can_be_painted_over():
    """Patches are numbered as the links number regions: with its own painted over, nothing of an object is left."""
    drawn = draw_marked(20, objects=1, noise=0.0)
    patches = torch.zeros(20, 36, dtype=torch.bool)
    for row, held in enumerate(drawn.masks[:, 0].view(20, 6, 8, 6, 8).any(4).any(2).flatten(1)):
        patches[row] = held
    before = centred(drawn.images)
    left = occlude(before, patches, 8)
    assert left.masked_select(drawn.masks).abs().max() == 0 < before.masked_select(drawn.masks).abs().min()


MAPS = torch.full((1, 1, 1, 2, 2), 0.5)
IMAGES = torch.rand(2, 3, 8, 8)
PATCHES = torch.ones(2, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rollout(MAPS[0]), "maps: expected a floating tensor .* got torch.float32 of shape .1, 1, 2, 2."),
        (lambda: rollout(MAPS.long()), "maps: expected a floating tensor .* got torch.int64"),
        (lambda: rollout([MAPS]), "maps: expected a floating tensor .* got list"),
        (lambda: rollout(MAPS[..., :1]), r"maps: expected shape .* got \(1, 1, 1, 2, 1\)"),
        (lambda: rollout(MAPS[:, :0]), r"maps: expected shape .* got \(1, 0, 1, 2, 2\)"),
        (lambda: occlude(IMAGES, PATCHES, 0), "patch_size: expected an integer of at least 1"),
        (lambda: occlude(IMAGES, PATCHES, 3), "images: expected sides that 3 divides"),
        (lambda: occlude(IMAGES.byte(), PATCHES, 4), "images: expected a floating tensor"),
        (lambda: occlude(IMAGES[0], PATCHES, 4), "images: expected a floating tensor"),
        (lambda: occlude([1], PATCHES, 4), "images: expected a floating tensor .* got list"),
        (lambda: occlude(IMAGES, PATCHES.float(), 4), "patches: expected a boolean tensor .* got torch.float32"),
        (lambda: occlude(IMAGES, PATCHES[:, :3], 4), r"patches: .* shape \(2, 4\), got torch.bool of shape \(2, 3\)"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
