import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from attn_core import capture_attention
from attn_core.capture import is_captured, record
from attn_core.transformer import LanguageModel, TransformerConfig


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


def checkpointed(layer, use_reentrant):
    """The layer, whose forward pass the backward pass repeats."""
    plain = layer.forward
    layer.forward = lambda x, **more: checkpoint(lambda x: plain(x, **more), x, use_reentrant=use_reentrant)


@pytest.mark.parametrize("elsewhere", [False, True])  # for a GPU, backward passes run in a thread of their own
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_what_checkpointing_computes_again_is_not_collected_again(use_reentrant, elsewhere):
    config = TransformerConfig(7, model_dim=8, num_heads=2, num_layers=3, feed_forward_dim=12, dropout=0.0)
    model, tokens, found = LanguageModel(config), torch.tensor([[1, 2, 3, 4]]), []
    for again in (False, True):
        if again:
            checkpointed(model.stack.layers[1], use_reentrant)
        model.zero_grad()
        with capture_attention(model) as maps:
            backward = model(tokens).square().sum().backward
            if elsewhere:
                thread = threading.Thread(target=backward)
                thread.start()
                thread.join()
            else:
                backward()
            assert {name: len(kept) for name, kept in maps.items()} == {
                f"stack.layers.{number}.attention": 1 for number in range(3)
            }
        found.append([maps, {name: p.grad for name, p in model.named_parameters()}])
    torch.testing.assert_close(found[1], found[0])
