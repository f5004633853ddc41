import pytest
import torch
from torch import nn

from attn_core import capture_attention
from attn_core.capture import is_captured, record


class Layer(nn.Module):
    def forward(self, weights):
        if is_captured(self):
            record(self, weights)
        return weights


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Layer(), Layer()

    def forward(self, weights):
        return self.second(self.first(weights) + 1)


def test_collects_one_map_per_call_under_each_modules_name():
    model, weights = Model(), torch.zeros(1, 2, 3, 4, requires_grad=True)
    with capture_attention(model) as maps:
        model(weights)
        model(weights + 5)
    assert list(maps) == ["first", "second"]
    assert [float(x.mean()) for x in maps["second"]] == [1.0, 6.0]
    assert not maps["first"][0].requires_grad


def test_nothing_is_collected_outside_or_from_other_models():
    model, other = Model(), Model()
    with capture_attention(model) as maps:
        other(torch.zeros(1))
    model(torch.zeros(1))
    assert maps == {} and not is_captured(model.first)


def test_captures_nest_and_end_after_an_error():
    model = Model()
    with pytest.raises(RuntimeError, match="inside"), capture_attention(model) as outer:
        with capture_attention(model.first) as inner:
            model(torch.zeros(1))
        model(torch.zeros(1))
        raise RuntimeError("inside")
    assert list(inner) == [""] and len(inner[""]) == 1
    assert len(outer["first"]) == 2
    assert not is_captured(model.first)
