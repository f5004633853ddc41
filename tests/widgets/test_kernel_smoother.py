import math

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from attn_book.widgets import KernelSmoother

matplotlib.use("Agg")
X, Y = [0.0, 1.0, 3.0, 10.0], [2.0, -1.0, 4.0, 0.0]
STATE = ("x", "y", "bandwidth", "query", "x_label", "y_label")


def state(widget):
    return {name: getattr(widget, name) for name in STATE}


@pytest.mark.parametrize(("bandwidth", "query"), [(0.02, 2.0), (0.5, 2.2), (3, 0), (50, 10)])
def test_it_is_nadaraya_and_watsons_average(bandwidth, query):
    widget = KernelSmoother(X, Y, bandwidth=bandwidth, query=query)
    # The bumps themselves, less the exponent of the nearest: far from all points each would be rounded to zero.
    exponents = [-((query - x) ** 2) / (2 * bandwidth**2) for x in X]
    bumps = [math.exp(exponent - max(exponents)) for exponent in exponents]
    np.testing.assert_allclose(widget.weights(), np.array(bumps) / sum(bumps), atol=1e-12)
    assert widget.output() == pytest.approx(sum(b * y for b, y in zip(bumps, Y, strict=True)) / sum(bumps), abs=1e-12)


def test_the_bandwidths_ends_are_the_nearest_point_and_the_average():
    widget = KernelSmoother(X, Y, bandwidth=10 / 500, query=2.1)
    assert widget.output() == Y[2]
    widget.bandwidth = 50.0
    assert widget.output() == pytest.approx(np.mean(Y), abs=0.02)


def test_state_is_kept_as_plain_numbers():
    widget = KernelSmoother(np.array([0, 10], dtype=np.float32), torch.tensor([3, 4]), query=np.int64(2), x_label="t")
    expected = {"x": [0.0, 10.0], "y": [3.0, 4.0], "bandwidth": 1.0, "query": 2.0, "x_label": "t", "y_label": "y"}
    assert state(widget) == expected
    assert {type(number) for number in [*widget.x, *widget.y, widget.bandwidth, widget.query]} == {float}


def test_refuses_points_that_do_not_match_and_labels_that_are_no_text():
    with pytest.raises(ValueError, match=r"^(x|y): expected \d numbers, as many as (x|y), got \d$"):
        KernelSmoother([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="^x: expected at least two different numbers, got 4 alone$"):
        KernelSmoother([4, 4], [1, 2])
    with pytest.raises(ValueError, match="^y_label: expected a string, got 3$"):
        KernelSmoother(X, Y, y_label=3)


def test_bandwidth_and_query_follow_the_points():
    widget = KernelSmoother(X, Y, bandwidth=50, query=10)
    widget.x = [0.0, 0.5, 0.7, 1.0]
    assert (widget.bandwidth, widget.query) == (5.0, 1.0)
    widget.set_state({"x": [0, 100, 200], "y": [1, 2, 3], "query": 150})
    assert (widget.bandwidth, widget.query) == (5.0, 150.0)


def test_picture_draws_the_curve_and_the_weights():
    widget = KernelSmoother(X, Y, bandwidth=2, query=3)
    _, (above, below) = plt.subplots(2)
    widget._draw_curve(above)
    widget._draw_weights(below)
    curve = above.lines[1].get_xydata()
    for query, output in curve[::50]:
        assert KernelSmoother(X, Y, bandwidth=2, query=min(query, 10)).output() == pytest.approx(output)
    (bars,) = below.collections
    np.testing.assert_allclose([bar[1, 1] for bar in bars.get_segments()], widget.weights())
    plt.close("all")
