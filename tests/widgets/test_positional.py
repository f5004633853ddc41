import io
import json
import math
import re

import ipywidgets
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image

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


@pytest.mark.parametrize("value", [None, "3", True, 2.5, math.nan, math.inf, -1000, 10**400, [], "</script>"])
@pytest.mark.parametrize("name", STATE)
def test_refuses_and_keeps_what_it_had(name, value):
    value = 1.9 if name == "base" and value == 2.5 else value
    widget = PositionalEncodingExplorer()
    before = state(widget)
    with pytest.raises(ValueError, match=f"^{name}: expected a"):
        setattr(widget, name, value)
    for other in STATE[3:]:
        with pytest.raises(ValueError, match=f"^{name}: expected a"):
            widget.set_state({other: 3, name: value})  # as a page would send it
    assert state(widget) == before
    if value is not None:
        with pytest.raises(ValueError, match=f"^{name}: expected a"):
            PositionalEncodingExplorer(**{name: value})


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


def test_numbers_of_numpy_and_torch_become_plain():
    widget = PositionalEncodingExplorer(np.int64(8), torch.tensor(9), base=np.float32(2.5), offset=np.int8(-2))
    assert [type(value) for value in state(widget).values()] == [int, int, float, int, int, int]


def test_traits_are_synced_observed_and_linked():
    one, two = PositionalEncodingExplorer(), PositionalEncodingExplorer(dim=16)
    assert {"_esm", "_css", *STATE} <= set(one.get_state())
    assert set(one.trait_names(static=True)) == set(STATE)
    seen = []
    one.observe(lambda change: seen.append((change.name, change.new)), ["dim", "column"])
    link = ipywidgets.link((one, "offset"), (two, "offset"))
    one.set_state({"dim": 4, "offset": -3})
    assert sorted(seen) == [("column", 3), ("dim", 4)] and two.offset == -3
    link.unlink()
    one.close()
    two.close()


def test_colours_are_the_same_on_axes_and_in_the_page():
    assert ", ".join(plots.DIVERGING) in str(PositionalEncodingExplorer._css)


# How the three kinds of colour blindness see linear RGB: Machado et al. 2009, severity 1.
BLIND = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def lab(colour, sight):
    """CIELAB of a hexadecimal colour, as seen."""
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(BLIND[sight]) @ linear, 0, 1)
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
    x, y, z = np.cbrt(np.maximum(np.array(to_xyz) @ linear / [0.95047, 1, 1.08883], 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", BLIND)
def test_a_value_and_its_negative_differ_to_every_eye(sight):
    ramps = re.findall(r"--attn-stops: ((?:#\w{6}, ){6}#\w{6});", str(PositionalEncodingExplorer._css))
    assert len(ramps) == 2, "light and dark"
    for ramp in ramps:
        seen = [lab(colour, sight) for colour in ramp.split(", ")]
        assert min(np.linalg.norm(seen[i] - seen[6 - i]) for i in range(3)) > 25
        assert min(np.linalg.norm(seen[i] - seen[i + 1]) for i in range(6)) > 15
        outwards = [seen[k][0] for k in (3, 2, 1, 0)], [seen[k][0] for k in (3, 4, 5, 6)]
        assert all(len({x < y for x, y in zip(side, side[1:], strict=False)}) == 1 for side in outwards)


def test_html_stands_alone_is_stable_and_small():
    one, two = PositionalEncodingExplorer(), PositionalEncodingExplorer()
    text = one.static_html()
    assert text == two.static_html() and len(text) < 100_000
    assert len(PositionalEncodingExplorer(256, 256).static_html()) < 100_000
    two.offset = 8
    assert two.static_html() != text
    two.offset = 7
    assert two.static_html() == text
    (held,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert json.loads(held) == state(one)
    assert not re.search(r"\bon\w+=|\b(?:src|href)=\"(?!data:)", text)


def test_bundle_has_a_view_a_page_a_picture_and_text():
    data, _ = PositionalEncodingExplorer()._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/html", "image/png", "text/plain"}
    assert data["text/plain"] == "PositionalEncodingExplorer(dim=32, length=64, base=10000)"


def test_description_has_the_numbers():
    said = PositionalEncodingExplorer(16, 30, base=100, position=5, column=4, offset=-3).describe()
    omega = 100 ** (-4 / 16)
    assert f"30 positions by 16 dimensions, base 100; PE[5, 4] = {math.sin(5 * omega):.3f}" in said
    assert f"Pair 2 as two points on a circle and as two curves: it turns by {omega:.4g} rad" in said
    assert f"for an offset of -3 by {-3 * omega:.3f} rad" in said
    assert PositionalEncodingExplorer(7, column=6).describe().endswith("Column 6 is a sine without a partner.")
    assert "partner" not in PositionalEncodingExplorer(7, column=5).describe()


@pytest.mark.parametrize(
    "changes", [{"column": 30}, {"offset": -4}, {"position": 0}, {"base": 2}, {"dim": 7, "column": 6}]
)
def test_picture_follows_the_state(changes):
    picture = PositionalEncodingExplorer(**changes).picture()
    assert Image.open(io.BytesIO(picture)).format == "PNG" and picture != PositionalEncodingExplorer().picture()


def test_picture_leaves_what_matplotlib_is_set_to():
    before = matplotlib.rcParams.copy()
    PositionalEncodingExplorer().picture()
    assert matplotlib.rcParams == before and not plt.get_fignums()


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


@pytest.mark.parametrize(
    ("draw", "arguments", "message"),
    [
        (plots.positional_matrix, (np.ones(3),), "table: expected encodings"),
        (plots.positional_pair, (np.ones((0, 3)), 0), "table: expected encodings"),
        (plots.positional_products, (np.ones((1, 3, 2)), 0), "table: expected encodings"),
        (plots.positional_pair, (np.ones((4, 5)), 3), "pair: expected one from 0 to 2"),
        (plots.positional_pair, (np.ones((4, 5)), -1), "pair: expected"),
        (plots.positional_products, (np.ones((4, 5)), 4), "position: expected one from 0 to 3"),
        (plots.positional_products, (np.ones((4, 5)), -1), "position: expected"),
    ],
)
def test_plots_refuse(draw, arguments, message):
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match=message):
        draw(ax, *arguments)


@pytest.mark.parametrize("cell", [(4, 0), (0, 5), (-1, 0)])
def test_matrix_refuses_a_cell_it_has_not(cell):
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match="cell: expected"):
        plots.positional_matrix(ax, np.ones((4, 5)), cell=cell)
