"""What the heatmap looks like: its colours, its contrast, and how it takes the width it is given."""

import io
import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attn_book import plots
from attn_book.widgets import AttentionHeatmap

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


def colours(page, rows, columns, canvas=".attn-area canvas"):
    """The colour in the middle of each cell, (T, S, 3)."""
    image = np.asarray(Image.open(io.BytesIO(page.locator(canvas).screenshot())).convert("RGB")).astype(int)
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
            page.locator(".attn-view").nth(head).click()
            expected = ramp(WEIGHTS[layer, head].numpy() / WEIGHTS.max().item())
            np.testing.assert_allclose(colours(page, 5, 5), expected, atol=2)


def test_small_maps_show_every_head_of_the_layer(show):
    with show(AttentionHeatmap(WEIGHTS, TOKENS, TOKENS).static_html()) as page:
        for layer in (1, 0):
            page.locator("input[name=layer]").fill(str(layer))
            for head in range(3):
                shown = colours(page, 5, 5, f".attn-view:nth-child({head + 1}) canvas")
                expected = ramp(WEIGHTS[layer, head].numpy() / WEIGHTS.max().item())
                np.testing.assert_allclose(shown, expected, atol=2)


def test_small_maps_mark_the_truth_and_follow_the_theme(show):
    links = [(0, 1), (2, 3)]
    with show(AttentionHeatmap(torch.zeros(2, 5, 5), TOKENS, TOKENS, links=links).static_html()) as page:
        view = page.locator(".attn-view canvas").first
        for theme, mark in (("light", (217, 104, 15)), ("dark", (255, 157, 61))):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            page.wait_for_selector(f".attn-heatmap[data-theme={theme}]")
            image = np.asarray(Image.open(io.BytesIO(view.screenshot())).convert("RGB")).astype(int)
            marked, size = np.abs(image - mark).sum(-1) < 24, image.shape[0] // 5
            # Three sides of an outline at least: a neighbour may show a blurred line.
            cells = marked[: 5 * size, : 5 * size].reshape(5, size, 5, size).sum((1, 3)) > 2.5 * size
            assert {(int(s), int(t)) for t, s in np.argwhere(cells)} == set(links)


@pytest.mark.parametrize(
    ("heads", "rows", "columns"), [(12, 12, 12), (16, 2, 40), (2, 40, 2), (3, 1, 1), (4, 64, 64), (4, 150, 150)]
)
def test_small_maps_can_be_hit_and_fit_a_narrow_screen(show, heads, rows, columns):
    weights = torch.rand(heads, rows, columns)
    widget = AttentionHeatmap(weights, ["s"] * columns, ["t"] * rows)
    with show(widget.static_html(), width=320) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        for box in page.locator(".attn-view").evaluate_all("all => all.map((e) => e.getBoundingClientRect().toJSON())"):
            assert box["width"] >= 24 and box["height"] >= 24 and box["right"] <= 320
        drawn = page.locator(".attn-view canvas").first.bounding_box()
        longer, shorter = sorted((drawn["width"], drawn["height"]), reverse=True)
        assert longer <= 96.5 and shorter >= 3
        assert longer >= 56 or drawn["width"] >= 24 * columns, "large cells, or a large map"
        assert drawn["width"] / drawn["height"] == pytest.approx(columns / rows, rel=0.05)


@pytest.mark.parametrize(
    ("heads", "width", "expected"),
    [(2, 700, [2]), (8, 700, [4, 4]), (12, 700, [6, 6]), (16, 700, [6, 6, 4]), (12, 320, [3, 3, 3, 3])],
)
def test_lines_of_small_maps_are_about_as_long_as_each_other(show, heads, width, expected):
    widget = AttentionHeatmap(torch.rand(heads, 12, 12), ["s"] * 12, ["t"] * 12)
    with show(widget.static_html(), width=width) as page:
        tops = page.locator(".attn-view").evaluate_all("all => all.map((e) => e.offsetTop)")
        assert [tops.count(top) for top in sorted(set(tops))] == expected


def test_a_small_map_shows_that_it_is_pointed_at_and_pressed(show):
    with show(AttentionHeatmap(WEIGHTS, TOKENS, TOKENS).static_html()) as page:
        view = page.locator(".attn-view").nth(1)

        def looks():
            return view.evaluate("e => [getComputedStyle(e).borderTopColor, getComputedStyle(e).backgroundColor]")

        idle = looks()
        view.hover()
        pointed = looks()
        page.mouse.down()
        pressed = looks()
        page.mouse.up()
        assert pointed[0] != idle[0] and pressed[1] != pointed[1]


def test_the_corner_is_whole_above_short_tokens(show):
    with show(AttentionHeatmap(torch.rand(3, 3), ["a"] * 3, ["b"] * 3).static_html()) as page:
        corner, scroll = (page.locator(part).first.bounding_box() for part in (".attn-corner span", ".attn-scroll"))
        assert corner["y"] >= scroll["y"]


def test_long_names_of_layers_fit_a_narrow_screen(show):
    names = [f"decoder.layers.{number}.cross_attention.{'long' * 9}" for number in range(2)]
    captured = {name: [WEIGHTS[:1, 0, None]] for name in names}
    with show(AttentionHeatmap(captured, TOKENS, TOKENS).static_html(), width=320) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        assert page.locator(".attn-value").inner_text() == names[0]


def test_on_paper_the_heads_are_there_and_the_chosen_one_is_framed(show):
    with show(AttentionHeatmap(WEIGHTS, TOKENS, TOKENS, head=1).static_html(), theme="dark") as page:
        page.emulate_media(media="print")
        page.wait_for_selector(".attn-heatmap[data-theme=light]")
        frames = page.locator(".attn-view").evaluate_all("all => all.map((e) => getComputedStyle(e).borderTopColor)")
        weights = page.locator(".attn-view span").evaluate_all("all => all.map((e) => getComputedStyle(e).fontWeight)")
        assert frames[0] == frames[2] != frames[1] and weights == ["400", "600", "400"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_fault_in_the_heads(show, theme):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    widget = AttentionHeatmap(WEIGHTS, TOKENS, TOKENS)
    with show(f"<main><h1>t</h1>{widget.static_html()}</main>", theme=theme) as page:
        page.evaluate((resources.files(package) / "axe.min.js").read_text(encoding="utf-8"))
        rules = {"target-size": {"enabled": True}}
        found = page.evaluate("rules => axe.run('html', {rules}).then((found) => found.violations)", rules)
        assert not found, [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


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
        narrow = page.locator(".attn-area canvas").bounding_box()["width"]
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
        box, drawn = root.bounding_box(), page.locator(".attn-area canvas").bounding_box()
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
