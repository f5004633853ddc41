"""The explorer of sinusoidal positions in a page: its numbers against the package's, its controls."""

import re

import numpy as np
import pytest
import torch

from attn_book.widgets import PositionalEncodingExplorer
from attn_core.positions import sinusoidal
from tests.browser.page import cell, numbers, pixels, read, slide, text

pytestmark = pytest.mark.browser

SLIDERS = ("dim", "length", "base", "position", "offset", "pair")
# Sizes even and odd, offsets that stay in the table and leave it at either end.
STATES = [
    {},
    {"dim": 7, "length": 12, "base": 10, "position": 11, "column": 5, "offset": 8},
    {"dim": 255, "length": 30, "base": 100_000, "position": 3, "column": 128, "offset": -29},
    {"dim": 256, "length": 256, "base": 2, "position": 250, "column": 1, "offset": -17},
    {"dim": 2, "length": 8, "base": 12_345, "column": 0, "offset": 0},
]
each_state = pytest.mark.parametrize("state", STATES, ids=lambda state: f"dim{state.get('dim', 32)}")


def html(**state):
    return PositionalEncodingExplorer(**state).static_html()


def rows(widget, positions):
    """Encodings of any positions, those below 0 too: sine is odd, cosine even."""
    table = sinusoidal(600, widget.dim, base=widget.base, dtype=torch.float64).numpy()
    sign = np.where(np.arange(widget.dim) % 2, 1, -1)
    return np.array([table[i] if i >= 0 else table[-i] * sign for i in positions])


def values(page):
    return {name: float(page.locator(f"input[name={name}]").input_value()) for name in SLIDERS}


@each_state
def test_every_cell_pointed_at_has_the_value_of_the_package(show, state):
    widget = PositionalEncodingExplorer(**state)
    with show(widget.static_html()) as page:
        generator = np.random.default_rng(0)
        size = [widget.length, widget.dim]
        for i, c in [(0, 0), (size[0] - 1, size[1] - 1), *generator.integers(0, size, (8, 2))]:
            page.mouse.move(*cell(page, i, c, (widget.length, widget.dim)))
            assert numbers(page, ".attn-read")[0] == pytest.approx(widget.table()[i, c], abs=1e-9)
            assert read(page).startswith(f"PE[{i}, {c}] = {'cos' if c % 2 else 'sin'}(")
            omega = widget.base ** (-(c // 2 * 2) / widget.dim)
            wavelength = float(re.search(r"wavelength ([\d,.]+)", read(page))[1].replace(",", ""))
            assert wavelength == pytest.approx(2 * np.pi / omega, rel=0.01)
        page.mouse.move(1, 1)
        assert numbers(page, ".attn-read")[0] == pytest.approx(widget.table()[widget.position, widget.column], abs=1e-9)


@each_state
def test_the_rotation_is_by_the_offset_times_the_frequency(show, state):
    widget = PositionalEncodingExplorer(**state)
    start = widget.column // 2 * 2
    pair = slice(start, start + 2)
    with show(widget.static_html()) as page:
        for offset in (widget.offset, 0, 1, 1 - widget.length):
            slide(page, "offset", offset)
            angle = offset / widget.base ** (start / widget.dim)
            block = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
            at = rows(widget, [widget.position, widget.position + offset])[:, pair]
            shown = numbers(page, ".attn-bracket span")
            np.testing.assert_allclose(shown, [*at[1], *block.flatten(), *at[0]], atol=1e-9)
            assert [float(t.replace("−", "-")) for t in page.locator(".attn-bracket span").all_inner_texts()] == (
                pytest.approx(shown, abs=5.1e-4)
            )


def test_moving_the_position_turns_both_points_and_leaves_the_angle(show):
    with show(html()) as page:
        seen = []
        for position in (10, 0, 40):
            slide(page, "position", position)
            shown = numbers(page, ".attn-bracket span")
            seen.append((shown[2:6], text(page, ".attn-note", 1), page.locator(".attn-wave").last.get_attribute("d")))
            angle = [position * 10_000 ** (-6 / 32), (position + 7) * 10_000 ** (-6 / 32)]
            expected = [wave(at) for at in reversed(angle) for wave in (np.sin, np.cos)]
            assert shown[:2] + shown[6:] == pytest.approx(expected)
            # The first pair of drawn points: sine across, cosine upwards, from the middle of the circle.
            dots = page.locator(".attn-plot").nth(1).locator("circle:not(.attn-trail)")
            at = np.array(dots.evaluate_all("all => all.map((e) => [e.cx.baseVal.value, e.cy.baseVal.value])"))
            middle = np.array([page.locator(".attn-plot svg").nth(1).evaluate("e => e.viewBox.baseVal.width") / 2, 128])
            expected = [[np.sin(a), -np.cos(a)] for a in reversed(angle)]
            np.testing.assert_allclose((at - middle) / 104, expected, atol=1e-6)
        assert seen[0] == seen[1] == seen[2]
        steady = "If you move i, both points turn, and the angle between them stays the same."
        assert seen[0][1] == f"ω·δ = 0.1778 · 7 = 1.245 rad (71.3°). {steady}"
        slide(page, "offset", -40)
        slide(page, "position", 3)
        assert "−7.113 rad (−1.13 turns)" in text(page, ".attn-note", 1)
        assert text(page, ".attn-note", 1).endswith("Position −37 is outside the matrix.")


@each_state
def test_products_are_those_of_the_encodings(show, state):
    widget = PositionalEncodingExplorer(**state)
    with show(widget.static_html()) as page:
        for offset in (widget.offset, 0, 5, -5, widget.length - 1):
            slide(page, "offset", offset)
            one, two = rows(widget, [widget.position, widget.position + offset])
            assert numbers(page, ".attn-note")[3] == pytest.approx(one @ two, abs=1e-6)
        assert ("depends on δ alone" in text(page, ".attn-note", 3)) == (widget.dim % 2 == 0)
        assert ("changes with i" in text(page, ".attn-note", 3)) == (widget.dim % 2 == 1)


def test_the_last_column_of_an_odd_size_has_no_partner(show):
    with show(html(dim=7, column=5, base=10)) as page:
        assert page.locator(".attn-equation").is_visible() and page.locator(".attn-wave.attn-cosine").count() == 1
        curve = page.locator(".attn-product").get_attribute("d")
        slide(page, "position", 20)
        assert page.locator(".attn-product").get_attribute("d") != curve, "its sine alone depends on the position"
        slide(page, "pair", 3)
        assert page.locator(".attn-equation").is_hidden() and page.locator(".attn-wave.attn-cosine").count() == 0
        assert text(page, ".attn-note", 1).startswith("Column 6 is the last of an odd number: a sine without a cosine.")
        assert read(page).startswith("PE[20, 6] = sin(")
        slide(page, "dim", 8)
        assert page.locator(".attn-equation").is_visible()


def test_dragging_goes_on_choosing(show):
    with show(html(dim=20, length=40)) as page:
        page.mouse.move(*cell(page, 3, 4, (40, 20)))
        page.mouse.down()
        page.mouse.move(*cell(page, 30, 15, (40, 20)), steps=4)
        assert values(page)["position"] == 30 and values(page)["pair"] == 7
        page.mouse.move(*cell(page, 99, 99, (40, 20)))
        assert values(page)["position"] == 39 and values(page)["pair"] == 9
        page.mouse.up()
        page.mouse.move(*cell(page, 0, 0, (40, 20)))
        assert values(page)["position"] == 39


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_matrix_has_the_colours_of_its_values(show, theme):
    widget = PositionalEncodingExplorer(6, 10, column=5, position=9)
    with show(widget.static_html(), theme=theme) as page:
        stops = page.locator(".attn-card").evaluate("e => getComputedStyle(e).getPropertyValue('--attn-stops')")
        stops = np.array([[int(stop.strip()[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops.split(",")])
        assert (stops[3].mean() < 60) == (theme == "dark"), "zero is near the paper"
        image = pixels(page, ".attn-area canvas")
        height, width = image.shape[:2]
        for i, c in np.ndindex(9, 5):
            value = (widget.table()[i, c] + 1) / 2
            expected = [np.interp(value, np.linspace(0, 1, 7), stops[:, channel]) for channel in range(3)]
            found = image[int((i + 0.5) * height / 10), int((c + 0.5) * width / 6)]
            np.testing.assert_allclose(found, expected, atol=3)
