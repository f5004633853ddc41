"""The recorded runs on images: what a model cannot see, what it may see, and the guesses that it is compared with."""

import torch

from attn_book.corpus import centred, draw_scenes
from attn_core import capture_attention
from recorded import connector, images


def test_without_positions_exchanged_objects_change_nothing():
    """What the ceiling of one half rests on: the same bag of patches, the same answer."""
    torch.manual_seed(0)
    model, drawn = images.classifier("left", "vit without positions").eval(), draw_scenes(8)
    pictures = centred(drawn.images)
    with torch.no_grad():
        torch.testing.assert_close(model(images.shuffle(pictures, 12)), model(pictures), atol=1e-4, rtol=1e-4)
        assert (model(images.shuffle(pictures, 8)) - model(pictures)).abs().max() > 1e-2  # cut objects are another bag


def test_the_patches_see_all_or_what_is_before_them():
    """The logits of the text change with the order of the patches only through the mask and the positions."""
    torch.manual_seed(0)
    model = connector.Describer(images.vit(12), connector.writer()).eval()
    pictures, tokens = centred(draw_scenes(2).images), torch.tensor([[1, 5, 9], [1, 6, 7]])
    with torch.no_grad(), capture_attention(model.writer) as causal:
        model(pictures, None, tokens)
    model.patches_see_all = True
    with torch.no_grad(), capture_attention(model.writer) as full:
        model(pictures, None, tokens)
    for maps, later in ((causal, 0), (full, 16 * 15 // 2)):
        (weights,) = next(iter(maps.values()))
        seen = weights[0, 0] > 0
        assert seen[16:].tolist() == [[True] * (17 + row) + [False] * (2 - row) for row in range(3)]
        assert int(seen[:16, :16].triu(1).sum()) == later and not seen[:16, 16:].any()
