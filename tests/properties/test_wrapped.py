"""Other layers in the place of linear ones: LoRA's, and those of dynamic quantisation."""

import copy

import pytest
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic

from attn_core import GatedDeltaNet, LatentAttention, MultiHeadAttention
from attn_core.decode import generate
from attn_core.transformer import LanguageModel, TransformerConfig
from tests.properties.modules import MODULES, Inputs, outputs

SOME = Inputs(batch=2, length=5, seed=1)


class Beside(nn.Module):
    """A linear layer and what LoRA adds to it; nothing of the layer is an attribute of this one."""

    def __init__(self, base):
        super().__init__()
        self.base, like = base, {"dtype": base.weight.dtype}
        self.down = nn.Parameter(torch.randn(2, base.in_features, **like) / 4)
        self.up = nn.Parameter(torch.randn(base.out_features, 2, **like) / 4)

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


class WithBaseWeight(Beside):
    """It has the base's weight as an attribute, as some libraries' layers do, which is not what it multiplies by."""

    weight = property(lambda self: self.base.weight)


def exchanged(module, kind, make):
    """``module`` with ``make(layer)`` in the place of each layer of this kind; shared ones stay shared."""
    made = {layer: make(layer) for layer in module.modules() if type(layer) is kind}
    for parent in [*module.modules()]:
        for name, layer in [*parent._modules.items()]:
            if layer in made:
                setattr(parent, name, made[layer])
    return module


def merge(layer):
    """The base, its weight with what LoRA adds."""
    with torch.no_grad():
        layer.base.weight += layer.up @ layer.down
    return layer.base


def adapted(module, kind=Beside):
    """The module with LoRA's layers, and the same with plain ones whose weights are merged."""
    torch.manual_seed(5)
    wrapped = exchanged(module, nn.Linear, kind).eval()
    return wrapped, exchanged(copy.deepcopy(wrapped), kind, merge)


WITH_LAYERS = [name for name, row in MODULES.items() if any(type(child) is nn.Linear for child in row.make().modules())]


@pytest.mark.parametrize("kind", [Beside, WithBaseWeight])
@pytest.mark.parametrize("name", WITH_LAYERS)
def test_lora_is_the_same_as_its_merged_weights(name, kind):
    wrapped, merged = adapted(MODULES[name].make(), kind)
    found = []
    for module in (wrapped, merged):
        torch.manual_seed(0)
        found.append(outputs(MODULES[name].call(module, SOME)))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def language_model(attention=MultiHeadAttention, positions=None):
    config = TransformerConfig(
        17, model_dim=16, num_heads=4, num_layers=2, feed_forward_dim=24, norm_first=True, attention=attention
    )
    return LanguageModel(config, positions=positions).eval()


def latent(model_dim, num_heads, *, bias, **_):
    return LatentAttention(model_dim, num_heads, latent_dim=8, rotary_dim=2, bias=bias)


def recurrent(model_dim, num_heads, **_):
    return GatedDeltaNet(model_dim, num_heads)


PROMPTS = [[1, 5, 3], [2, 4, 6, 8, 3]]


@pytest.mark.parametrize("attention", [MultiHeadAttention, latent, recurrent])
def test_generation_with_lora_is_that_with_merged_weights(attention):
    wrapped, merged = adapted(language_model(attention).double())
    texts = [[x.ids for x in generate(model, PROMPTS, max_new_tokens=8)] for model in (wrapped, merged)]
    assert texts[0] == texts[1]


def quantised(module):
    return quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    "name", ["MultiHeadAttention", "LatentAttention, causal", "GatedDeltaNet", "LanguageModel", "Transformer"]
)
def test_dynamic_quantisation_changes_little(name):
    torch.manual_seed(0)
    module = MODULES[name].make().eval()
    (wanted,), (found,) = (outputs(MODULES[name].call(m, SOME)) for m in (module, quantised(module)))
    assert (found - wanted).norm() < 0.05 * wanted.norm()
