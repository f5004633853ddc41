"""What attention over patches looks like: its pixels against NumPy's, its outlines, and how it takes its place."""

import base64
import io
from importlib import resources

import numpy as np
import pytest
import torch
from PIL import Image

from attn_book.widgets.patch_attention import PatchAttentionExplorer
from tests.browser.test_patch_attention import (
    DRAWN,
    PICTURES,
    captioner,
    choose,
    html,
    percent,
    place,
    said,
    transformer,
)

pytestmark = pytest.mark.browser

VEIL = np.array([16, 18, 26])


def pixels(page, selector):
    """A canvas's own pixels, (height, width, 3)."""
    data = page.locator(selector).evaluate("e => e.toDataURL()").split(",")[1]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(float)


def seen(image, row, size, scale):
    """What should be drawn of an image `(H, W, 3)` from 0 to 1 with the weights `row (R,)`, outlines apart."""
    veil = 0.65 * (1 - row / row.max()).reshape(48 // size, 48 // size)
    veil = veil.repeat(size, 0).repeat(size, 1)[..., None]
    drawn = (1 - veil) * np.rint(image * 255) + veil * VEIL
    return drawn.repeat(scale, 0).repeat(scale, 1)


def inner(image, size, scale):
    """The parts of a picture that no outline covers: the patches without their edges."""
    step = size * scale
    parts = image.reshape(48 // size, step, 48 // size, step, 3).swapaxes(1, 2)
    return parts[:, :, 5:-5, 5:-5]


@pytest.mark.parametrize("make", [captioner, transformer])
def test_each_choice_dims_the_image_by_its_weights(show, make):
    weights, widget = make()
    with show(html(widget)) as page:
        for image, layer, head, query in [(0, 0, -1, 0), (1, 1, 2, 0), (2, 0, 0, 1), (2, 1, -1, 1)]:
            choose(page, "images", image)
            choose(page, "heads", head)
            page.locator("input[name=layer]").fill(str(layer))
            choose(page, "queries", query)
            maps = weights[image][layer].double().numpy()[:, query]
            row = maps.mean(0) if head < 0 else maps[head]
            picture = PICTURES[image].numpy()
            drawn, wanted = pixels(page, ".attn-area canvas"), seen(picture, row, 8, 8)
            np.testing.assert_allclose(inner(drawn, 8, 8), inner(wanted, 8, 8), atol=2)
            for shown, each in enumerate([maps.mean(0), *maps]):
                small = pixels(page, f".attn-heads label:nth-child({shown + 1}) canvas")
                np.testing.assert_allclose(small, seen(picture, each, 8, 1), atol=2)
            plain = pixels(page, f".attn-images label:nth-child({image + 1}) canvas")
            np.testing.assert_allclose(plain, picture * 255, atol=0.51)


@pytest.mark.parametrize("make", [captioner, transformer])
def test_the_three_greatest_are_outlined_and_named(show, make):
    weights, widget = make(head=1, query=1, layer=1)
    best = np.argsort(-weights[0][1, 1, 1].numpy())[:3]
    with show(html(widget)) as page:
        drawn = pixels(page, ".attn-area canvas")
        mark = (np.abs(drawn - [217, 104, 15]).sum(-1) < 6).reshape(6, 64, 6, 64).sum((1, 3)).ravel()
        assert set(np.flatnonzero(mark > 300)) == {int(r) for r in best}
        # What asks is dashed in white, and only where it is a patch.
        edges = drawn[2:3, 6:58].reshape(-1, 3) if make is transformer else drawn[:0].reshape(-1, 3)
        assert len(np.unique(edges > 250)) == (2 if make is transformer else 0)
        listed = ", ".join(f"{r} ({percent(weights[0][1, 1, 1, r])})" for r in best)
        name = "Patch 0" if make is transformer else f"“{DRAWN.captions[0][1]}”"
        assert said(page) == f"{name} attends most to patches {listed}."
        assert page.locator(".attn-most").inner_text() == percent(weights[0][1, 1, 1].max()).replace(" ", "\u00a0")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("make", [captioner, transformer])
def test_axe_finds_no_fault(show, make, theme):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    with show(f"<main><h1>t</h1>{html(make(query=1)[1])}</main>", theme=theme) as page:
        page.locator(".attn-cell").press("ArrowRight")
        page.evaluate((resources.files(package) / "axe.min.js").read_text(encoding="utf-8"))
        rules = {"target-size": {"enabled": True}}
        found = page.evaluate("rules => axe.run('html', {rules}).then((found) => found.violations)", rules)
        assert not found, [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


@pytest.mark.parametrize("make", [captioner, lambda: transformer(patch_size=6), lambda: transformer(heads=12)])
def test_a_narrow_screen_does_not_scroll_sideways_and_can_be_hit(show, make):
    _, widget = make()
    with show(html(widget), width=320) as page:
        page.locator(".attn-area").hover(position=place(page, 5))
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        boxes = "all => all.map((e) => e.getBoundingClientRect().toJSON())"
        right = page.locator(".attn-card").evaluate("e => e.getBoundingClientRect().right - 15")
        assert all(box["right"] <= right + 1 for box in page.locator(".attn-card *").evaluate_all(boxes))
        for box in page.locator(".attn-choice, .attn-cell").evaluate_all(boxes):
            assert box["width"] >= 24 and box["height"] >= 24
        assert page.locator(".attn-area canvas").bounding_box()["width"] == 240, "whole pixels"


def test_pixels_stay_squares_on_a_fine_screen(show):
    weights, widget = captioner(layers=1, heads=1)
    with show(html(widget), device_scale_factor=2) as page:
        drawn = pixels(page, ".attn-area canvas")
        wanted = seen(PICTURES[0].numpy(), weights[0][0, 0, 0].numpy(), 8, 16)
        np.testing.assert_allclose(
            inner(drawn, 8, 16)[:, :, 5:-5, 5:-5], inner(wanted, 8, 16)[:, :, 5:-5, 5:-5], atol=2
        )
    large = torch.rand(1, 448, 448, 3, generator=torch.Generator().manual_seed(0))
    with show(html(PatchAttentionExplorer(large, [torch.rand(4) / 4 * torch.eye(4)], patch_size=224))) as page:
        assert page.locator(".attn-area canvas").bounding_box()["width"] == 384, "one larger than the room is fitted"


def test_follows_the_theme_and_prints_light_and_whole(show):
    _, widget = captioner(query=1)
    with show(html(widget), theme="dark") as page:
        root = page.locator(".attn-card")
        assert root.get_attribute("data-theme") == "dark"
        before = pixels(page, ".attn-area canvas")
        page.emulate_media(media="print")
        page.wait_for_selector(".attn-card[data-theme=light]")
        assert root.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("button:visible, .attn-hint:visible").count() == 0
        assert (pixels(page, ".attn-area canvas") == before).all()
        assert page.locator(".attn-read").is_visible() and page.locator(".attn-answer").is_visible()


def test_without_scripts_the_picture_stands(show, drawn):
    _, widget = captioner(query=1)
    with show(html(widget), java_script_enabled=False) as page:
        image = page.locator(".attn-picture")
        assert image.is_visible() and image.bounding_box()["width"] > 100
        assert f"“{DRAWN.captions[0][1]}”, layer 0, mean of 3 heads" in image.get_attribute("alt")
