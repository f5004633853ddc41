"""Attention over patches in a page: what it says against NumPy, and its controls by pointer, finger and keys."""

import numpy as np
import pytest
import torch

from attn_book.corpus import draw_scenes
from attn_book.widgets.patch_attention import PatchAttentionExplorer
from tests.browser.page import choose, pixels, read
from tests.browser.walks import random_weights

pytestmark = pytest.mark.browser

DRAWN = draw_scenes(3, seed=3)
VEIL = np.array([16, 18, 26])
PICTURES = DRAWN.images.permute(0, 2, 3, 1)
LENGTHS = [len(caption) for caption in DRAWN.captions]
ANSWERS = ["It says: <b>one</b>.\nTrue: two & three.", "", "Yes."]


def captioner(*, layers=2, heads=3, **options):
    weights = [random_weights(layers, heads, length, 36, seed=i) for i, length in enumerate(LENGTHS)]
    given = {"patch_size": 8, "queries": DRAWN.captions, "answers": ANSWERS, **options}
    return weights, PatchAttentionExplorer(PICTURES, weights, **given)


def transformer(*, class_token=True, patch_size=8, heads=4, images=3, **options):
    patches = (48 // patch_size) ** 2
    weights = random_weights(images, 2, heads, patches + class_token, patches + class_token)[..., int(class_token) :]
    return weights, PatchAttentionExplorer(PICTURES[:images], weights, patch_size=patch_size, **options)


def chosen(page, group):
    return page.locator(f".attn-{group} .attn-chosen").inner_text()


def percent(weight):
    return f"{100 * weight:.1f} %"


def place(page, patch, size=8):
    """The middle of a patch in the picture, as a position within it."""
    step = page.locator(".attn-area canvas").bounding_box()["width"] * size / 48
    return {"x": (patch % (48 // size) + 0.5) * step, "y": (patch // (48 // size) + 0.5) * step}


def test_rows_with_ties_and_without_weight_say_so(show):
    weights = torch.tensor([[0.25] * 4, [0, 0, 0, 0], [0, 0.5, 0, 0], [0.4, 0.3, 0.2, 0.1]])
    widget = PatchAttentionExplorer(PICTURES[:1], [weights], patch_size=24, queries=[["all", "no", "one", "four"]])
    with show(widget.static_html()) as page:
        found = []
        for query in range(4):
            choose(page, "queries", query)
            found.append((read(page), page.locator(".attn-whole").inner_text().replace("\u00a0", " ")))
    assert found == [
        ("“all” gives its largest weight, 25.0 %, to 4 of 4 patches.", ""),
        ("“no” gives the patches no weight.", "All patches together: 0 %."),
        ("“one” attends most to patch 1 (50.0 %).", "All patches together: 50 %."),
        ("“four” attends most to patches 0 (40.0 %), 1 (30.0 %), 2 (20.0 %).", ""),
    ]


def test_the_pointer_reads_a_patch(show):
    weights, widget = captioner(layers=1, heads=1, query=2)
    row = weights[0][0, 0, 2].numpy()

    def reading(r):
        rank = 1 + (row > row[r]).sum()
        word = DRAWN.captions[0][2]
        text = f"“{word}” → patch {r} (row {r // 6}, column {r % 6}): weight {percent(row[r])}, rank {rank} of 36."
        return text, f"{percent(row[r])} · #{rank}"

    with show(widget.static_html()) as page:
        area, tag = page.locator(".attn-area"), page.locator(".attn-tag")
        at_rest = read(page)
        assert tag.is_hidden()
        for patch in (0, 5, 14, 30, 35):
            area.hover(position=place(page, patch))
            assert (read(page), tag.inner_text().replace("\u00a0", " ")) == reading(patch)
            box, around = tag.bounding_box(), area.bounding_box()
            assert around["x"] <= box["x"] and box["x"] + box["width"] <= around["x"] + around["width"] + 0.5
        page.mouse.move(1, 1)
        assert read(page) == at_rest and tag.is_hidden()


def test_a_patch_becomes_the_query_by_click_and_by_enter(show):
    weights, widget = transformer(head=0)
    with show(widget.static_html()) as page:
        assert read(page).startswith("The class token attends most") and chosen(page, "queries") == "class token"
        page.locator(".attn-area").click(position=place(page, 20))
        page.mouse.move(1, 1)
        best = int(weights[0][0, 0, 21].argmax())
        assert read(page).startswith(f"Patch 20 attends most to patches {best} (")
        assert chosen(page, "queries") == "patch 20"
        assert page.locator(".attn-cell").get_attribute("aria-selected") == "true"
        page.keyboard.press("ArrowDown")
        assert page.locator(".attn-cell").get_attribute("aria-selected") == "false"
        for key in ("Enter", "ArrowUp", " "):
            page.keyboard.press(key)
        assert chosen(page, "queries") == "patch 20"
    _, widget = transformer(class_token=False, patch_size=6)
    with show(widget.static_html()) as page:
        page.locator(".attn-area").click(position=place(page, 63, 6))
        assert read(page).startswith("Patch 63 → patch 63 (row 7, column 7)")
        assert page.locator(".attn-queries label").count() == 1


def test_play_steps_through_the_words_and_pauses(show):
    _, widget = captioner()
    words = DRAWN.captions[0]
    with show(widget.static_html(), apart=True) as page:
        page.clock.install(time=0)
        page.reload()
        page.clock.pause_at(60_000)
        play = page.locator(".attn-play")
        play.click()
        assert (chosen(page, "queries"), play.inner_text()) == (words[1], "Pause")
        page.clock.run_for(1300)
        assert chosen(page, "queries") == words[2]
        play.click()
        page.clock.run_for(9000)
        assert (page.locator(".attn-queries input:checked").input_value(), play.inner_text()) == ("2", "Play")
        play.click()
        choose(page, "queries", 0)
        page.clock.run_for(9000)
        assert (page.locator(".attn-queries input:checked").input_value(), play.inner_text()) == ("0", "Play")
        play.click()
        page.clock.run_for(1200 * len(words))
        last = str(len(words) - 1)
        assert (page.locator(".attn-queries input:checked").input_value(), play.inner_text()) == (last, "Play")
        play.click()
        assert (page.locator(".attn-queries input:checked").input_value(), play.inner_text()) == ("0", "Pause")
        choose(page, "images", 1)
        assert play.inner_text() == "Play"


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
    with show(widget.static_html()) as page:
        for image, layer, head, query in [(0, 0, -1, 0), (1, 1, 2, 0), (2, 0, 0, 1), (2, 1, -1, 1)]:
            choose(page, "images", image)
            choose(page, "heads", head)
            page.locator("input[name=layer]").fill(str(layer))
            choose(page, "queries", query)
            maps = weights[image][layer].double().numpy()[:, query]
            row = maps.mean(0) if head < 0 else maps[head]
            picture = PICTURES[image].numpy()
            assert f" {row.argmax()} ({percent(row.max())})" in read(page)
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
    with show(widget.static_html()) as page:
        drawn = pixels(page, ".attn-area canvas")
        mark = (np.abs(drawn - [217, 104, 15]).sum(-1) < 6).reshape(6, 64, 6, 64).sum((1, 3)).ravel()
        assert set(np.flatnonzero(mark > 300)) == {int(r) for r in best}
        # What asks is dashed in white, and only where it is a patch.
        edges = drawn[2:3, 6:58].reshape(-1, 3) if make is transformer else drawn[:0].reshape(-1, 3)
        assert len(np.unique(edges > 250)) == (2 if make is transformer else 0)
        listed = ", ".join(f"{r} ({percent(weights[0][1, 1, 1, r])})" for r in best)
        name = "Patch 0" if make is transformer else f"“{DRAWN.captions[0][1]}”"
        assert read(page) == f"{name} attends most to patches {listed}."
        assert page.locator(".attn-most").inner_text() == percent(weights[0][1, 1, 1].max()).replace(" ", "\u00a0")
