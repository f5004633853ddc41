import numpy as np
import pytest
import torch

from attn_book import plots
from attn_book.widgets import AttentionHeatmap

SOURCE, TARGET = "the black cat . <eos>".split(), "le chat noir .".split()
WEIGHTS = torch.rand(2, 3, 4, 5).softmax(-1)
LINKS = [(0, 0), (2, 1), (1, 2), (3, 3)]


def heatmap(**changes):
    arguments = {"weights": WEIGHTS, "source": SOURCE, "target": TARGET, "links": LINKS, **changes}
    return AttentionHeatmap(arguments.pop("weights"), arguments.pop("source"), arguments.pop("target"), **arguments)


@pytest.mark.parametrize("size", [8, 16])
def test_holds_each_weight_to_the_precision_it_states(size):
    weights = WEIGHTS if size == 16 else torch.rand(2, 3, 64, 64)
    tokens = (SOURCE, TARGET) if size == 16 else (["s"] * 64, ["t"] * 64)
    widget = AttentionHeatmap(weights, *tokens, layer=1, head=2)
    assert widget.bits == size
    off = np.abs(widget.grid() - weights[1, 2].numpy()).max()
    assert off <= widget.scale / (2 * (2**size - 1)) + 1e-7
    widget.head = 0
    assert np.abs(widget.grid() - weights[1, 0].numpy()).max() <= widget.scale / 510


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("weights", WEIGHTS * float("nan")), ("weights", -WEIGHTS), ("weights", torch.ones(4)), ("title", None)],
        *[("source", TARGET), ("source", "abcde"), ("source", 5), ("target", [1, 2, 3, 4]), ("links", [(5, 0)])],
    ],
)
def test_refuses(name, value):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        heatmap(**{name: value})


def test_refuses_more_than_a_page_can_hold():
    many = torch.zeros(1, 2**20 // 20 + 1, 4, 5)
    with pytest.raises(ValueError, match="weights: expected at most 1,048,576 numbers, got 1,048,580$"):
        heatmap(weights=many)


def test_colours_are_the_same_on_axes_and_in_the_page():
    for text in (str(AttentionHeatmap._esm).replace('"', ""), str(AttentionHeatmap._css)):
        assert ", ".join(plots.RAMP) in text and plots.MARK in text


def test_sizes():
    ten = AttentionHeatmap(torch.rand(10, 10), ["word"] * 10, ["mot"] * 10, links=[(i, i) for i in range(10)])
    assert len(ten.static_html()) < 60_000
    tokens = [f"word{i}" for i in range(64)]
    many = AttentionHeatmap(torch.rand(8, 12, 64, 64), tokens, tokens)
    assert len(many.static_html()) < 1_000_000


@pytest.mark.parametrize(
    ("names", "kind"), [(("encoder.layers.0", "encoder.layers.1"), "layer"), (("dot", "β = 1"), "map")]
)
def test_description_calls_a_map_a_layer_only_if_it_is_one(names, kind):
    eye = torch.eye(5)[None, [0, 2, 1, 3]]
    said = heatmap(weights=dict.fromkeys(names, eye), layer=1, title="Cross").describe()
    assert said.startswith(f"Cross, {kind} {names[1]}: heatmap")


def test_all_zero_weights_are_shown():
    widget = heatmap(weights=torch.zeros(4, 5))
    assert widget.scale == 1.0 and not widget.grid().any()
