import math

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from attn_book import plots
from attn_book.widgets import PositionalEncodingExplorer

matplotlib.use("Agg")
STATE = ("dim", "length", "base", "position", "column", "offset")


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def sines(length, dim, base=10_000.0):
    """The encodings by a loop of their own."""
    rows = [[math.sin(i / base ** (c // 2 * 2 / dim) + c % 2 * math.pi / 2) for c in range(dim)] for i in range(length)]
    return np.array(rows)


def state(widget):
    return {name: getattr(widget, name) for name in STATE}


@pytest.mark.parametrize(("dim", "base"), [(32, 10_000), (7, 10), (2, 2.5), (255, 100_000)])
def test_table_holds_the_encodings(dim, base):
    np.testing.assert_allclose(PositionalEncodingExplorer(dim, 20, base=base).table(), sines(20, dim, base), atol=1e-12)


def test_limits_follow_the_sizes():
    widget = PositionalEncodingExplorer(9, 12, position=11, column=8, offset=-11)
    for name, value in [("position", 12), ("column", 9), ("offset", 12), ("offset", -12)]:
        with pytest.raises(ValueError, match=f"{name}: expected a whole number from .* to .*, got {value}"):
            setattr(widget, name, value)
    widget.dim, widget.length = 4, 8
    assert state(widget) == {"dim": 4, "length": 8, "base": 10_000.0, "position": 7, "column": 3, "offset": -7}
    widget.set_state({"dim": 64, "column": 63, "length": 100, "position": 99, "offset": 99})
    assert state(widget) == {"dim": 64, "length": 100, "base": 10_000.0, "position": 99, "column": 63, "offset": 99}


def test_the_usual_cell_fits_a_small_table():
    assert state(PositionalEncodingExplorer(4, 8)) == dict(zip(STATE, (4, 8, 10_000.0, 7, 3, 7), strict=True))


def test_matrix_is_drawn_from_minus_one_to_one_with_its_cell():
    _, ax = plt.subplots()
    plots.positional_matrix(ax, torch.tensor(sines(12, 5)) * 0.5, cell=(3, 1))
    (image,) = ax.images
    np.testing.assert_allclose(image.get_array(), sines(12, 5) * 0.5)
    assert image.get_clim() == (-1, 1)
    assert tuple(ax.patches[0].get_center()) == (1, 3)
    assert ax.transData.transform((0, 0))[1] > ax.transData.transform((0, 11))[1], "position 0 stands first"


def test_pair_draws_its_sine_and_its_cosine():
    _, ax = plt.subplots()
    plots.positional_pair(ax, sines(12, 5), 1)
    assert [line.get_label() for line in ax.lines] == ["sine", "cosine"]
    np.testing.assert_allclose([line.get_ydata() for line in ax.lines], sines(12, 5)[:, 2:4].T)
    _, ax = plt.subplots()
    plots.positional_pair(ax, sines(12, 5), 2)
    assert [line.get_label() for line in ax.lines] == ["sine"]


def test_circle_has_the_sine_across_and_turns_clockwise():
    _, ax = plt.subplots()
    plots.positional_circle(ax, 0.3, 1.1)
    ends = {text.get_text(): np.array(text.get_position()) / 1.2 for text in ax.texts}
    np.testing.assert_allclose(ends["i"], [math.sin(0.3), math.cos(0.3)])
    np.testing.assert_allclose(ends["i + δ"], [math.sin(1.4), math.cos(1.4)])


def test_products_are_those_of_one_row_with_all():
    _, ax = plt.subplots()
    plots.positional_products(ax, sines(12, 6), 4)
    offsets, products = ax.lines[0].get_data()
    assert list(offsets) == list(range(-4, 8))
    omega = 10_000 ** (-np.arange(0, 6, 2) / 6)
    np.testing.assert_allclose(products, np.cos(np.outer(offsets, omega)).sum(1))
