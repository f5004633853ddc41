import math

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from attn_book.widgets import OnlineSoftmaxStepper

matplotlib.use("Agg")
STATE = ("scores", "values", "tile", "step")
ROWS = [
    ([2, 1, 3, 0.5], [1, -2, 4, 8]),
    ([0.0], [7.0]),
    ([-1000, 1000, 999, -3], [1, 2, 3, 4]),
    ([5, 5, 5, 5, 5], [-1000, 1000, 0, 3, 2]),
    (torch.randn(24, generator=torch.Generator().manual_seed(0)) * 50, torch.arange(24.0)),
]


def state(widget):
    return {name: getattr(widget, name) for name in STATE}


@pytest.mark.parametrize("tile", [1, 2, 3, 24])
@pytest.mark.parametrize(("scores", "values"), ROWS)
def test_after_each_tile_it_is_softmax_over_what_was_read(scores, values, tile):
    widget = OnlineSoftmaxStepper(scores, values, tile=min(tile, len(scores)))
    steps = widget.steps()
    x, v = (torch.as_tensor(row, dtype=torch.float64) for row in (scores, values))
    ends = [min(end, len(x)) for end in range(widget.tile, len(x) + widget.tile, widget.tile)]
    assert len(steps) == len(ends)
    for step, before, end in zip(steps, [None, *steps], ends, strict=False):
        assert step.output == pytest.approx((torch.softmax(x[:end], 0) @ v[:end]).item(), rel=1e-12, abs=1e-12)
        assert step.maximum == x[:end].max()
        assert step.maximum + math.log(step.total) == pytest.approx(torch.logsumexp(x[:end], 0).item())
        assert step.weighted == pytest.approx(((x[:end] - x[:end].max()).exp() @ v[:end]).item(), abs=1e-9)
        assert step.factor == (math.exp(before.maximum - step.maximum) if before else 0)


def test_state_is_kept_as_plain_numbers():
    widget = OnlineSoftmaxStepper(np.array([1, 2], dtype=np.float32), torch.tensor([3, 4]), tile=np.int64(1))
    assert state(widget) == {"scores": [1.0, 2.0], "values": [3.0, 4.0], "tile": 1, "step": 2}
    assert {type(number) for number in widget.scores + widget.values} == {float} and type(widget.tile) is int
    assert OnlineSoftmaxStepper([5], [6]).tile == 1


def test_it_opens_where_the_sums_are_corrected():
    widget = OnlineSoftmaxStepper()
    assert widget.step == 2 and 0 < widget.steps()[1].factor < 1
    assert [OnlineSoftmaxStepper([5] * n, [6] * n).step for n in (1, 2, 3, 24)] == [1, 1, 2, 2]


def test_refuses_rows_that_do_not_match():
    widget = OnlineSoftmaxStepper([1, 2], [3, 4])
    for name, other in [("scores", "values"), ("values", "scores")]:
        with pytest.raises(ValueError, match=f"^{name}: expected 2 numbers, as many as {other}, got 3"):
            setattr(widget, name, [1, 2, 3])
        with pytest.raises(ValueError, match=f"^{other}: expected as many numbers as {name}, got None"):
            OnlineSoftmaxStepper(**{name: [1, 2]})
    with pytest.raises(ValueError, match=r"^(scores|values): expected \d numbers, as many as"):
        OnlineSoftmaxStepper([1, 2], [1, 2, 3])
    assert widget.scores == [1, 2] and widget.values == [3, 4]


def test_tile_and_step_follow_the_rows():
    widget = OnlineSoftmaxStepper([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], tile=2, step=3)
    with pytest.raises(ValueError, match="^step: expected a whole number from 0 to 3, got 4"):
        widget.step = 4
    widget.tile = 4
    assert (widget.tile, widget.step) == (4, 2)
    with widget.hold_trait_notifications():
        widget.scores, widget.values = [1, 2], [3, 4]
    assert state(widget) == {"scores": [1, 2], "values": [3, 4], "tile": 2, "step": 1}
    widget.set_state({"scores": [1] * 6, "values": [2] * 6, "tile": 1, "step": 6})
    assert (widget.tile, widget.step) == (1, 6)


def test_picture_draws_the_weights_of_what_was_read():
    widget = OnlineSoftmaxStepper([1, 0, 3, 2], [1, 2, 3, 4], step=1)
    _, ax = plt.subplots()
    widget._draw_bars(ax)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], np.exp([0, -1]))
    widget.step = 2
    _, ax = plt.subplots()
    widget._draw_bars(ax)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], np.exp([-2, -3, 0, -1]))
    plt.close("all")
