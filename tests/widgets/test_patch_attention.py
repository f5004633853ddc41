import base64
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from attn_book.corpus import draw_scenes
from attn_book.plots import MARK
from attn_book.widgets.patch_attention import PatchAttentionExplorer

DRAWN = draw_scenes(3, seed=1)
PICTURES = DRAWN.images.permute(0, 2, 3, 1)
WORDS = [["a", "red"], ["the"], ["one", "two", "three"]]


def random_weights(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).mul(2).softmax(-1)


def captions(**options):
    """Three pictures of 9 patches, captions of 2, 1 and 3 words, 2 layers, 2 heads."""
    weights = [random_weights(2, 2, len(words), 9, seed=i) for i, words in enumerate(WORDS)]
    return weights, PatchAttentionExplorer(PICTURES, weights, patch_size=16, queries=WORDS, **options)


def state(widget):
    return {name: getattr(widget, name) for name in widget.trait_names(static=True)}


@pytest.mark.parametrize(("words", "bits"), [(3, 16), (120, 8)])
def test_every_weight_is_kept_to_a_step_of_its_rows_greatest(words, bits):
    lengths = [words, words + 1, 2]
    weights = [0.9 * random_weights(3, 4, length, 9, seed=length) for length in lengths]
    weights[1][2, 3, 0] = 0
    queries = [["w"] * length for length in lengths]
    widget = PatchAttentionExplorer(PICTURES, weights, patch_size=16, queries=queries)
    assert widget.bits == bits
    for image, layer, head in np.ndindex(3, 3, 4):
        widget.image, widget.layer, widget.head = image, layer, head
        exact = weights[image][layer, head].double().numpy()
        allowed = np.broadcast_to(exact.max(1, keepdims=True) / (2**bits - 1) / 2 * 1.0001 + 1e-9, exact.shape)
        assert (np.abs(widget.grid() - exact) <= allowed).all()
        widget.head = -1
        exact = weights[image][layer].double().mean(0).numpy()
        np.testing.assert_allclose(widget.grid(), exact, atol=1 / (2**bits - 1))


def test_images_keep_their_pixels():
    kept = [PatchAttentionExplorer(given, [torch.zeros(4, 4)] * 3, patch_size=24) for given in as_given(PICTURES)]
    assert len({widget.pixels for widget in kept}) == 1
    pixels = np.frombuffer(base64.b64decode(kept[0].pixels), np.uint8).reshape(3, 48, 48, 3)
    np.testing.assert_allclose(pixels / 255, PICTURES.numpy(), atol=0.5001 / 255)
    assert (kept[0].height, kept[0].width, kept[0].patch_size) == (48, 48, 24)


def as_given(images):
    whole = (images * 255).round().byte()
    return [images, images.double().numpy(), whole, whole.numpy()]


def test_what_is_given_is_neither_changed_nor_kept():
    weights, words, pictures = [torch.full((1, 9), 0.1)], [["a"]], PICTURES[:1].clone()
    widget = PatchAttentionExplorer(pictures, weights, patch_size=16, queries=words, answers=iter(["yes"]))
    before = json.dumps(state(widget))
    weights[0][:], words[0][0], pictures[:] = 0, "b", 0
    assert json.dumps(state(widget)) == before and widget.answers == ["yes"]


def test_a_class_token_is_known_by_the_number_of_queries():
    for rows, asked in ((10, "Class token"), (9, "Patch 0")):
        widget = PatchAttentionExplorer(PICTURES[:1], [random_weights(rows, 9)], patch_size=16)
        assert widget.queries == [[]] and widget.lengths == [rows]
        assert f" {asked}. " in widget.describe()
        widget.query = rows - 1
        assert " Patch 8. " in widget.describe()


def test_pictures_need_not_be_square():
    weights = torch.eye(7, 6).roll(1, 1)
    widget = PatchAttentionExplorer(PICTURES[:1, :24, :36], [weights], patch_size=12, query=6)
    assert "2 rows of 3 patches" in widget.describe() and "Patch 5. Greatest weights: none." in widget.describe()
    widget.query = 5
    assert "Patch 4. Greatest weights: row 0, column 0 (100.0 %)." in widget.describe()


def rows(*fill):
    """Weights of the captions, each row filled with such a number."""
    return [torch.full((len(words), 9), *fill) for words in WORDS]


WRONG = {
    "images": [PICTURES[0], DRAWN.images, PICTURES[:0], PICTURES * 1.5, PICTURES - 0.5, PICTURES * float("nan")]
    + [PICTURES.long(), "a picture"],
    "patch_size": [7, 0, 16.0],
    "weights": [torch.zeros(2, 2, 2, 9), {"a": 1}, None, [torch.zeros(len(words), 10) for words in WORDS]]
    + [[torch.zeros(2, 9), torch.zeros(2, 1, 9), torch.zeros(3, 9)], rows(0.12), rows(-1.0)],
    "queries": [WORDS[:2], "abc", ["ab", "c", "def"], [["a", "b"], ["c"], ["d", "e"]], None]
    + [[["a", 1], ["c"], ["d", "e", "f"]]],
    "answers": [["yes"], "yes", ["yes", 1, "no"]],
    "head": ["mean"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_refuses_what_does_not_fit(name, value):
    given = {"images": PICTURES, "weights": captions()[0], "patch_size": 16, "queries": WORDS, name: value}
    with pytest.raises(ValueError, match=f"^{name}: "):
        PatchAttentionExplorer(given.pop("images"), given.pop("weights"), **given)


def test_the_query_stays_within_the_caption():
    _, widget = captions(image=2, query=2)
    widget.image = 0
    assert widget.query == 1
    widget.set_state({"query": 2, "image": 2})
    assert (widget.image, widget.query) == (2, 2)
    widget.set_state({"image": 1})
    assert (widget.image, widget.query) == (1, 0)


@pytest.mark.parametrize("name", ["$$", "$\\frac$", "half\ud83d", "nul\0", "a name that goes on and on, " * 9])
def test_any_name_can_be_drawn(name):
    maps = [{name: [torch.full((1, 1, 1, 9), 0.1)], "b": [torch.full((1, 1, 1, 9), 0.1)]}]
    widget = PatchAttentionExplorer(PICTURES[:1], maps, patch_size=16, queries=[[name]])
    assert len(widget.picture()) > 1000


def test_the_picture_is_bright_and_outlined_where_the_weight_is():
    white = np.full((1, 48, 48, 3), 255, np.uint8)
    weights = torch.tensor([[0.9, 0, 0.1, 0], [0, 0.9, 0, 0.1]])
    data = PatchAttentionExplorer(white, [weights], patch_size=24, queries=[["a", "$b"]], query=1).picture()
    image = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
    marked = np.argwhere(np.abs(image - [int(MARK[i : i + 2], 16) for i in (1, 3, 5)]).sum(-1) < 30)
    (top, left), (bottom, right) = marked.min(0), marked.max(0)
    side = (bottom - top) // 2
    assert abs((right - left) - side) <= 8, "only the two patches on the right have weight, and an outline"
    seen = [image[top + side // 2 + side * (r // 2), left - side // 2 + side * (r % 2)] for r in range(4)]
    veil = 0.65 * np.array([1, 0, 1, 8 / 9])[:, None]
    np.testing.assert_allclose(seen, 255 * (1 - veil) + veil * [16, 18, 26], atol=8)
    assert np.min(seen) >= 255 / 3, "a third of the light is left where there is no weight"
