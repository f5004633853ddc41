"""Patches against a strided convolution, the encoder against its parts."""

import pytest
import torch
from torch import nn

from attn_core import capture_attention
from attn_core.transformer import TransformerConfig
from attn_core.vision import PatchEmbedding, VisionTransformer

CONFIG = TransformerConfig(1, model_dim=12, num_heads=3, num_layers=2, feed_forward_dim=16, norm_first=True)


def vit():
    torch.manual_seed(1)
    return VisionTransformer(CONFIG, image_size=12, patch_size=4).double().eval()


@pytest.mark.parametrize(("patch_size", "height", "width"), [(4, 8, 12), (1, 3, 2), (5, 5, 15)])
def test_patches_are_a_strided_convolution(patch_size, height, width):
    patches = PatchEmbedding(patch_size, 7).double()
    convolution = nn.Conv2d(3, 7, patch_size, stride=patch_size).double()
    convolution.weight.data = patches.projection.weight.data.view_as(convolution.weight)
    convolution.bias.data = patches.projection.bias.data
    images = torch.randn(2, 3, height, width, dtype=torch.float64)
    expected = convolution(images).flatten(2).transpose(1, 2)
    assert expected.shape == (2, height // patch_size * (width // patch_size), 7)
    torch.testing.assert_close(patches(images), expected)


def test_a_patch_is_its_own_pixels_row_by_row():
    patches, images = PatchEmbedding(4, 5), torch.randn(1, 3, 8, 12)
    changed = images.clone()
    changed[0, 1, 5, 9] += 1.0  # the second row of patches, the third in it
    moved = (patches(changed) - patches(images)).abs().sum(-1)[0]
    assert moved.nonzero().flatten().tolist() == [5]


def test_it_is_an_encoder_of_its_patches():
    """The class token first, positions added, the stack's layers one by one, then its norm."""
    model, images = vit(), torch.randn(2, 3, 12, 12, dtype=torch.float64)
    patches = torch.stack(
        [
            model.patches.projection(images[:, :, y : y + 4, x : x + 4].flatten(1))
            for y in range(0, 12, 4)
            for x in range(0, 12, 4)
        ],
        1,
    )
    x = torch.cat([model.class_token.expand(2, 1, 12), patches], 1) + model.positions.weight
    for layer in model.stack.layers:
        x = layer(x)
    x = nn.functional.layer_norm(x, (12,), model.stack.norm.weight, model.stack.norm.bias)
    torch.testing.assert_close(model(images), x[:, 0])


def test_where_a_patch_stands_counts():
    """Two patches change places: without positions, the image's vector would stay."""
    model, images = vit(), torch.randn(1, 3, 12, 12, dtype=torch.float64)
    swapped = images.clone()
    swapped[..., :4, :4], swapped[..., 8:, 8:] = images[..., 8:, 8:], images[..., :4, :4]
    assert (model(swapped) - model(images)).abs().max() > 1e-4
    model.positions.weight.data.zero_()
    torch.testing.assert_close(model(swapped), model(images))


def test_its_maps_are_collected():
    model, images = vit(), torch.randn(2, 3, 12, 12, dtype=torch.float64)
    plain = model(images)
    with capture_attention(model) as maps:
        torch.testing.assert_close(model(images), plain)
    assert list(maps) == ["stack.layers.0.attention", "stack.layers.1.attention"]
    for (weights,) in maps.values():
        assert weights.shape == (2, 3, 10, 10)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 10, dtype=torch.float64))


def test_everything_learns():
    model = vit()
    model(torch.randn(2, 3, 12, 12, dtype=torch.float64)).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_dropout_acts_on_the_embedded_patches():
    config = TransformerConfig(1, model_dim=12, num_heads=3, num_layers=1, feed_forward_dim=16, dropout=0.5)
    model = VisionTransformer(config, image_size=12, patch_size=4)
    seen = []
    model.stack.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(torch.randn(8, 3, 12, 12))
    assert (seen[0] == 0).float().mean().item() == pytest.approx(0.5, abs=0.1)
