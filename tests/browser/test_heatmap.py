"""The heatmap in a page: the weights that it draws, reads aloud and lets choose are those that it was given."""

import re

import numpy as np
import pytest
import torch

from attn_book import plots
from attn_book.widgets import AttentionHeatmap
from tests.browser.page import cell, pixels, read, slide, text

pytestmark = pytest.mark.browser

SOURCE, TARGET = "the black cat .".split(), "le chat noir".split()
# No mirror image of itself, so that rows taken for columns show.
LINKS = [(0, 0), (2, 1), (3, 2)]
WEIGHTS = (
    torch.tensor(
        [
            [[0.7, 0.1, 0.2, 0], [0.02, 0.04, 0.93, 0.01], [0.1, 0.8, 0.1, 0]],
            [[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.002, 0.008, 0.24, 0.75]],
        ]
    ).expand(3, 2, 3, 4)
    * torch.tensor([1, 0.5, 0.25])[:, None, None, None]
)
SHAPE = (3, 4)


def heatmap(weights=WEIGHTS, **changes):
    return AttentionHeatmap(weights, SOURCE, TARGET, **{"links": LINKS, **changes})


def colours(page, selector):
    """The colour in the middle of each cell (T, S, 3)."""
    image = pixels(page, selector)
    at = [((np.arange(n) + 0.5) * length / n).astype(int) for n, length in zip(SHAPE, image.shape, strict=False)]
    return image[np.ix_(*at)]


def ramp(shares):
    stops = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in plots.RAMP])
    return np.stack([np.interp(shares, np.linspace(0, 1, len(stops)), stops[:, c]) for c in range(3)], -1)


def chosen(page):
    """The head that the radio buttons say, and the one that looks chosen."""
    checked = page.locator(".attn-view input").evaluate_all("all => all.map((e) => e.checked)")
    framed = page.locator(".attn-view").evaluate_all("all => all.map((e) => e.className.includes('chosen'))")
    assert checked == framed and sum(checked) == 1
    return checked.index(True)


def test_each_head_of_each_layer_has_the_colours_of_its_weights_large_and_small(show):
    with show(heatmap().static_html()) as page:
        for layer, head in np.ndindex(3, 2):
            slide(page, "layer", layer)
            page.locator(".attn-view").nth(head).click()
            assert chosen(page) == head
            expected = ramp(WEIGHTS[layer].numpy() / WEIGHTS.max().item())
            np.testing.assert_allclose(colours(page, ".attn-area canvas"), expected[head], atol=2)
            for each in range(2):
                small = colours(page, f".attn-view:nth-child({each + 1}) canvas")
                np.testing.assert_allclose(small, expected[each], atol=2)


@pytest.mark.parametrize(("theme", "mark"), [("light", (217, 104, 15)), ("dark", (255, 157, 61))])
def test_the_true_alignment_is_outlined(show, theme, mark):
    with show(heatmap().static_html(), theme=theme) as page:
        image = pixels(page, ".attn-area canvas")
        size = image.shape[1] // 4
        marked = (np.abs(image - mark).sum(-1) < 24).reshape(3, size, 4, size).sum((1, 3)) > size
        assert {(int(s), int(t)) for t, s in np.argwhere(marked)} == set(LINKS)


@pytest.mark.parametrize("touch", [False, True])
def test_a_pointer_or_finger_reads_every_weight(show, touch):
    widget = heatmap(layer=1, head=1)
    with show(widget.static_html(), has_touch=touch) as page:
        for t, s in np.ndindex(*SHAPE):
            (page.touchscreen.tap if touch else page.mouse.move)(*cell(page, t, s, SHAPE))
            said = re.fullmatch(r"(.+) → (.+): <?([\d.]+)(, true alignment)?", read(page))
            assert said, read(page)
            assert said.group(1, 2) == (TARGET[t], SOURCE[s])
            assert abs(float(said[3]) - WEIGHTS[1, 1, t, s]) <= 0.005 + widget.scale / 510 + 0.004 * ("<" in said[0])
            assert bool(said[4]) == ((s, t) in LINKS)


def test_a_click_keeps_a_row_and_dims_the_others(show):
    with show(heatmap(WEIGHTS[0, 0], links=None).static_html()) as page:
        before = colours(page, ".attn-area canvas")

        def kept():
            page.mouse.move(1, 1)
            return (colours(page, ".attn-area canvas") == before).all((1, 2)).tolist()

        page.locator(".attn-row").nth(1).click()
        assert kept() == [False, True, False] and read(page) == "chat → cat 0.93, black 0.04, the 0.02"
        page.mouse.click(*cell(page, 1, 0, SHAPE))
        assert kept() == [True] * 3


def test_arcs_beside_a_map_are_linked_with_it(show):
    with show(heatmap(WEIGHTS[0, 0]).static_html()) as page:
        arc, on = page.locator(".attn-lit"), page.locator(".attn-arcs .attn-on")
        page.mouse.move(*cell(page, 1, 2, SHAPE))
        middle = """e => {
          const [at, box] = [e.getPointAtLength(e.getTotalLength() / 2), e.ownerSVGElement.getBoundingClientRect()];
          return [box.x + at.x, box.y + at.y];
        }"""
        assert on.all_text_contents() == ["chat", "cat"]
        place = arc.evaluate(middle)
        page.mouse.move(1, 1)
        assert on.count() == 0
        page.mouse.move(*place)
        assert read(page).startswith("chat → cat: 0.93") and page.locator(".attn-hover").is_visible()
        page.mouse.move(1, 1)
        page.locator(".attn-cell").press("ArrowDown")
        assert on.all_text_contents() == ["chat", "the"]
        page.set_viewport_size({"width": 375, "height": 800})
        page.wait_for_selector(".attn-arcs", state="hidden")


@pytest.mark.parametrize(
    ("names", "label", "said"),
    [
        (["0", "1"], "layer", "1, layer 1 of 0 to 1"),
        (["encoder.layers.0.attention", "final_layer"], "layer", "final_layer, layer 1 of 0 to 1"),
        (["dot", "β = 1"], "map", "β = 1"),
    ],
)
def test_the_slider_is_named_for_what_it_chooses(show, names, label, said):
    with show(heatmap({name: [WEIGHTS[:1, 0, None]] for name in names}, layer=1).static_html()) as page:
        slider = page.get_by_role("slider", name=label, exact=True)
        assert slider.get_attribute("aria-valuetext") == said and text(page, ".attn-value") == names[1]


@pytest.mark.parametrize("size", [3, 64])
def test_a_narrow_screen_scrolls_inside_the_widget(show, size):
    tokens = [f"word{i}" for i in range(size)]
    with show(AttentionHeatmap(torch.rand(2, size, size), tokens, tokens).static_html(), width=320) as page:
        page.locator(".attn-cell").press("Control+End")
        box, last = page.locator(".attn-scroll").bounding_box(), page.locator(".attn-cell").bounding_box()
        assert last["x"] + last["width"] <= box["x"] + box["width"] + 1
        assert page.locator(".attn-row").last.bounding_box()["x"] >= box["x"] - 1, "row labels stay in view"
