import io

import numpy as np
import pytest
import torch
from PIL import Image

from attn_book.data import Vocab
from attn_book.painter import encode_captions
from attn_book.widgets.exported import load_painter
from attn_book.widgets.text_to_image import CAPTION, TextToImage, read_caption
from attn_core.capture import capture_attention
from tests.browser.walks import painter


@pytest.fixture(scope="module")
def widget():
    return painter(*CAPTION.split())


@pytest.mark.parametrize("given", [None, [], "x", {}, {"words": [], "weights": {}}])
def test_refuses_what_was_not_exported(widget, given):
    for wrong in (given, {**widget.exported, "words": "a b"}):
        with pytest.raises(ValueError, match="^exported: expected "):
            TextToImage(wrong)
    with pytest.raises(ValueError, match="^model: expected a Painter"):
        TextToImage.of(torch.nn.Linear(2, 2), Vocab([["a"]]))


def test_words_that_are_not_known_as_they_stand_are_written_small():
    assert read_caption(" A Ring  CIRCLE ring", ["a", "Ring", "ring", "circle"]) == ["a", "Ring", "circle", "ring"]


@torch.no_grad()
def test_the_description_tells_where_each_word_is_looked_at_most(widget):
    model, ids_of = load_painter(widget.exported)
    ids, lengths = encode_captions([CAPTION.split(), []], ids_of)
    x = torch.randn(1, 16, 192, generator=torch.Generator().manual_seed(1))
    for step in range(11):  # what `paint` does, written anew
        with capture_attention(model) as maps:
            wanted, plain = model(x.repeat(2, 1, 1), torch.full((2,), step / 20), ids, lengths).split(1)
        x = x + (plain + 2 * (wanted - plain) - x) / (20 - step)
    mean = (maps["blocks.0.cross_attention"][0][0] + maps["blocks.1.cross_attention"][0][0]).mean(0) / 2
    for t, word in enumerate(CAPTION.split(), start=1):
        best = int(mean[:, t].argmax())
        place = f"{word} in row {best // 4 + 1}, column {best % 4 + 1} ({mean[best, t]:.2f})"
        assert place in widget.describe()


def test_the_picture_goes_from_noise_to_what_is_predicted(widget):
    model, _ = load_painter(widget.exported)
    with torch.no_grad():
        model.outward.weight.zero_()
        model.outward.bias.copy_(torch.tensor([1.0, -1, -1]).repeat_interleave(64))
    image = Image.open(io.BytesIO(TextToImage.of(model, Vocab([CAPTION.split()])).picture())).convert("RGB")
    red = (np.abs(np.asarray(image).astype(int) - [255, 0, 0]) < 40).all(-1)
    parts = np.array_split(red[: red.shape[0] // 2], 3, axis=1)
    assert parts[2].mean() > 0.4 > 0.2 > parts[0].mean()
