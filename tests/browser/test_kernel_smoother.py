"""Kernel regression in a page: its numbers against dot-product attention, and its controls."""

import numpy as np
import pytest
import torch

from attn_book.widgets import KernelSmoother
from attn_core import attention_with_weights
from tests.browser.page import numbers, read

pytestmark = pytest.mark.browser

X = [0.0, 2.5, 4.0, 7.0, 11.0, 12.5, 20.0]
Y = [3.0, 5.5, -2.0, 4.0, 9.0, 8.0, 1.0]
STATES = [{}, {"bandwidth": 0.04, "query": 5.4}, {"bandwidth": 100, "query": 20}, {"bandwidth": 1.37, "query": 0}]


def html(**state):
    return KernelSmoother(X, Y, **state).static_html()


def attended(bandwidth, query):
    """The output and the weights of dot-product attention: (q − k)² multiplied out, less q², which all scores share."""
    q, k, v = (torch.tensor(row, dtype=torch.float64).reshape(1, 1, -1, 1) for row in ([query], X, Y))
    scale = 1 / bandwidth**2
    out, weights = attention_with_weights(q, k, v, scale=scale, bias=-scale * k.flatten() ** 2 / 2)
    return out.item(), weights.flatten().tolist()


def shown(page):
    """The output and the weights that the page shows."""
    return numbers(page, ".attn-read")[0], numbers(page, ".attn-stem")


def values(page):
    return [page.locator(f"input[name={name}]").get_attribute("aria-valuetext") for name in ("bandwidth", "query")]


def place(page, share, nth=0):
    """A point of a drawing: a share of the way from the least x to the greatest."""
    box = page.locator(".attn-plot svg").nth(nth).bounding_box()
    left, right = box["x"] + 46, box["x"] + box["width"] - 12
    spare = (right - left) * 0.03 / 1.06
    return left + spare + share * (right - left - 2 * spare), box["y"] + box["height"] / 2


@pytest.mark.parametrize("state", STATES, ids=lambda state: str(state.get("bandwidth")))
def test_the_numbers_are_those_of_dot_product_attention(show, state):
    widget = KernelSmoother(X, Y, **state)
    with show(widget.static_html()) as page:
        output, weights = attended(widget.bandwidth, widget.query)
        assert shown(page) == (pytest.approx(output, abs=1e-9), pytest.approx(weights, abs=1e-9))
        # The curve, in the coordinates of the drawing, passes through the output at the query.
        dot, curve = page.locator(".attn-output"), page.locator("path.attn-curve").get_attribute("d")
        points = np.array([pair.split() for pair in curve[1:].split("L")], dtype=float)
        at = [float(dot.get_attribute(name)) for name in ("cx", "cy")]
        assert np.hypot(*(points - at).T).min() < 1.5
        # A disc is as large as its weight, the bars end at theirs.
        radii = page.locator(".attn-share").evaluate_all("all => all.map((e) => Number(e.getAttribute('r')))")
        assert np.square(radii) == pytest.approx(400 * np.array(weights), abs=1e-6)


def test_the_bandwidth_goes_by_factors_from_a_staircase_to_a_flat_line(show):
    with show(html(query=5.4)) as page:
        slider = page.locator("input[name=bandwidth]")
        seen = []
        for key in ("Home", "ArrowRight", "End"):
            slider.press(key)
            bandwidth = float(values(page)[0])
            seen.append(bandwidth)
            output, weights = attended(bandwidth, 5.4)
            assert shown(page) == (pytest.approx(output), pytest.approx(weights, abs=1e-9))
        assert seen == [0.04, pytest.approx(0.04 * 2500**0.01, abs=1e-3), 100]
        assert shown(page)[0] == pytest.approx(np.mean(Y), abs=0.05)
        slider.press("Home")
        assert read(page) == "At the query 5.4, the weighted average is 1.00 × (−2.0) ≈ −2.0."


def test_a_mouse_shows_the_weights_where_it_points_and_a_click_keeps_them(show):
    with show(html(bandwidth=2)) as page:
        before = shown(page)
        for nth in (0, 1):
            page.mouse.move(*place(page, 0.3, nth))
            output, weights = attended(2, 6)
            assert shown(page) == (pytest.approx(output, abs=0.1), pytest.approx(weights, abs=0.03))
            assert values(page)[1] == "10.0"
        page.mouse.move(1, 1)
        assert shown(page) == before
        page.mouse.move(*place(page, 0.3))
        page.mouse.down()
        page.mouse.up()
        page.mouse.move(1, 1)
        assert float(values(page)[1]) == pytest.approx(6, abs=0.1) and shown(page) != before
        page.mouse.move(*place(page, 0.3))
        page.mouse.down()
        page.mouse.move(*place(page, 0.75), steps=3)
        assert float(values(page)[1]) == pytest.approx(15, abs=0.1)
        page.mouse.move(*place(page, 1.2))
        page.mouse.up()
        assert values(page)[1] == "20.0"
