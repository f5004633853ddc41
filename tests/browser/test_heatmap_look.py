"""What the heatmap looks like: its colours, its contrast, and how it takes the width it is given."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attn_core import plots
from attn_core.widgets import AttentionHeatmap

pytestmark = pytest.mark.browser

TOKENS = "the black cat sleeps .".split()
WEIGHTS = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(3)).mul(2).softmax(-1)
RECORDED = Path(__file__).parents[2] / "recorded" / "results" / "landing.json"


def carried():
    """The sentence that the book carries, as its landing page shows it."""
    record = json.loads(RECORDED.read_text(encoding="utf-8"))
    return AttentionHeatmap(
        record["weights"], record["source"], record["target"], links=record["links"], title=record["title"]
    )


def colours(page, rows, columns):
    """The colour in the middle of each cell, (T, S, 3)."""
    image = np.asarray(Image.open(io.BytesIO(page.locator("canvas").screenshot())).convert("RGB")).astype(int)
    at = [
        ((np.arange(n) + 0.5) * length / n).astype(int) for n, length in zip((rows, columns), image.shape, strict=False)
    ]
    return image[np.ix_(*at)]


def ramp(shares):
    stops = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in plots.RAMP])
    return np.stack([np.interp(shares, np.linspace(0, 1, len(stops)), stops[:, c]) for c in range(3)], -1)


def luminance(colour):
    values = np.array([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def test_each_head_of_each_layer_has_the_colours_of_its_weights(show):
    with show(AttentionHeatmap(WEIGHTS, TOKENS, TOKENS).static_html()) as page:
        for layer, head in np.ndindex(2, 3):
            page.locator("input[name=layer]").fill(str(layer))
            page.locator("input[name=head]").fill(str(head))
            expected = ramp(WEIGHTS[layer, head].numpy() / WEIGHTS.max().item())
            np.testing.assert_allclose(colours(page, 5, 5), expected, atol=2)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(show, theme):
    with show(carried().static_html(), theme=theme) as page:
        ground = page.locator(".attn-heatmap").evaluate("e => getComputedStyle(e).backgroundColor")
        assert (luminance(ground) < 0.1) == (theme == "dark")
        for part in (".attn-title", ".attn-row", ".attn-column", ".attn-corner", ".attn-read", ".attn-legend"):
            ink = page.locator(part).first.evaluate("e => getComputedStyle(e).color")
            low, high = sorted((luminance(ink), luminance(ground)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, part


def test_the_books_sentence_fits_a_narrow_screen_and_grows_on_a_wide_one(show):
    with show(carried().static_html(), width=320) as page:
        assert page.locator(".attn-scroll").evaluate("e => e.scrollWidth <= e.clientWidth")
        labels = page.locator(".attn-column").evaluate_all(
            "all => all.map((e) => e.getBoundingClientRect()).map((box) => [box.left, box.right])"
        )
        assert all(right <= 320 for _, right in labels)
        assert all(after[0] >= before[0] + 12 for before, after in zip(labels, labels[1:], strict=False))
        narrow = page.locator("canvas").bounding_box()["width"]
        page.set_viewport_size({"width": 900, "height": 900})
        page.wait_for_function(f"document.querySelector('canvas').getBoundingClientRect().width > {1.5 * narrow}")


def test_a_page_that_names_no_theme_is_read_by_the_colour_of_its_text(show):
    body = '<div style="background: #111; color: #eee">' + carried().static_html() + "</div>"
    with show(f"<script>delete document.documentElement.dataset.theme</script>{body}") as page:
        assert page.locator(".attn-heatmap").get_attribute("data-theme") == "dark"


def test_on_paper_it_is_light_and_whole(show):
    tokens = [f"word{i}" for i in range(64)]
    with show(AttentionHeatmap(torch.rand(64, 64), tokens, tokens).static_html(), theme="dark") as page:
        page.emulate_media(media="print")
        page.wait_for_selector(".attn-heatmap[data-theme=light]")
        root = page.locator(".attn-heatmap")
        assert root.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
        # A sheet is 640 pixels wide within its margins, and does not scroll.
        box, drawn = root.bounding_box(), page.locator("canvas").bounding_box()
        assert drawn["x"] + drawn["width"] <= box["x"] + 660
        assert page.locator(".attn-hint").evaluate("e => getComputedStyle(e).visibility") == "hidden"


def test_a_kept_row_is_summed_up_once_the_pointer_leaves(show):
    with show(AttentionHeatmap(WEIGHTS, TOKENS, TOKENS).static_html()) as page:
        page.locator(".attn-area").click(position={"x": 5, "y": 5})
        assert page.locator(".attn-read").inner_text().startswith("the → the: ")
        page.mouse.move(1, 1)
        best = WEIGHTS[0, 0, 0].topk(3)
        said = ", ".join(f"{TOKENS[s]} {w:.2f}" for w, s in zip(best.values, best.indices, strict=True))
        assert page.locator(".attn-read").inner_text() == f"the → {said}"
        page.keyboard.press("ArrowRight")
        assert page.locator(".attn-read").inner_text() == f"the → black: {WEIGHTS[0, 0, 0, 1]:.2f}"
