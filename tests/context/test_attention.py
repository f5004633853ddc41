import math

import pytest
import torch
from torch import nn

from attn_book.context import ContextAttention
from attn_core import MultiHeadAttention, masks
from tests.context import reference

LENGTHS = torch.tensor([5, 3, 0])
PADDING = masks.padding(LENGTHS, 5)


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make(*args, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = ContextAttention(*args, **options)
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):
                nn.init.normal_(parameter, std=0.3)
    return layer


def shut(layer):
    """No context at all."""
    for gate in (layer.query_gate, layer.key_gate):
        nn.init.constant_(gate.bias, -math.inf)
    return layer


@pytest.mark.parametrize("places", [5, 1])
@pytest.mark.parametrize("causal", [True, False])
def test_it_equals_the_loops(places, causal):
    layer, x, context = make(6, 3, context_dim=4), draw(3, 5, 6), draw(3, places, 4, seed=1)
    wanted = reference.context_attention(layer, x, context, mask=PADDING, causal=causal)
    found = layer(x, context, mask=PADDING, causal=causal)
    torch.testing.assert_close(found.double(), wanted, atol=3e-6, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", [None, PADDING])
def test_without_context_weight_it_is_plain_attention_forward_and_backward(causal, mask):
    layer, plain = shut(make(6, 3, context_dim=4)), MultiHeadAttention(6, 3)
    plain.load_state_dict({name: p for name, p in layer.state_dict().items() if name in plain.state_dict()})
    x, toward = draw(3, 5, 6).requires_grad_(), draw(3, 5, 6, seed=2)
    context = draw(3, 5, 4, seed=1).requires_grad_()
    found, wanted = layer(x, context, mask=mask, causal=causal), plain(x, mask=mask, causal=causal)
    assert torch.equal(found, wanted)
    names = [name for name, _ in plain.named_parameters()]
    mine = torch.autograd.grad(found, [x, *(layer.get_parameter(name) for name in names)], toward, retain_graph=True)
    theirs = torch.autograd.grad(wanted, [x, *(plain.get_parameter(name) for name in names)], toward)
    torch.testing.assert_close(mine[0], theirs[0], atol=1e-6, rtol=0)  # three parts, added in another order
    for one, other in zip(mine[1:], theirs[1:], strict=True):
        assert torch.equal(one, other)
    rest = [p for name, p in layer.named_parameters() if name not in names]
    for gradient in torch.autograd.grad(found, [context, *rest], toward):
        assert not gradient.any()


def test_gradients_are_the_numerical_ones():
    layer = make(4, 2, context_dim=3).double()
    x = draw(2, 3, 4, dtype=torch.float64).requires_grad_()
    context = draw(2, 3, 3, seed=1, dtype=torch.float64).requires_grad_()
    mask = masks.padding(torch.tensor([3, 2]), 3)
    own = tuple(layer.parameters())

    def call(x, context, *own):
        named = dict(zip((name for name, _ in layer.named_parameters()), own, strict=True))
        return torch.func.functional_call(layer, named, (x, context), {"mask": mask})

    assert torch.autograd.gradcheck(call, (x, context, *own))


def test_a_row_that_sees_nothing_gets_what_out_makes_of_zeros():
    layer = make(6, 3, context_dim=4)
    out = layer(draw(3, 5, 6), draw(3, 1, 4, seed=1), mask=PADDING)
    torch.testing.assert_close(out[2], layer.out.bias.expand(5, 6), atol=0, rtol=0)
