import math

import pytest
import torch
from torch import nn

from attn_book.context import ContextAttention, blend
from attn_core import MultiHeadAttention, capture_attention, masks
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


def test_all_context_leaves_nothing_of_the_queries():
    layer = make(6, 3, context_dim=4)
    nn.init.constant_(layer.query_gate.bias, math.inf)
    x, context = draw(2, 5, 6), draw(2, 5, 4, seed=1)
    before = layer(x, context)
    nn.init.normal_(layer.query.weight)
    assert torch.equal(layer(x, context), before)


def test_a_shared_context_is_one_repeated():
    layer, x, context = make(6, 3, context_dim=4), draw(2, 5, 6), draw(2, 1, 4, seed=1)
    torch.testing.assert_close(layer(x, context), layer(x, context.repeat(1, 5, 1)), atol=1e-6, rtol=0)


def test_blend_is_exact_at_both_ends_and_in_between():
    x, context = draw(2, 3, 4), draw(2, 1, 4, seed=1)
    assert torch.equal(blend(x, context, torch.zeros(2, 3, 1)), x)
    assert torch.equal(blend(x, context, torch.ones(2, 3, 1)), context.expand_as(x))
    for weight in (0.25, 0.75):
        wanted = [
            [[(1 - weight) * float(a) + weight * float(b) for a, b in zip(word, given[0], strict=True)] for word in row]
            for row, given in zip(x, context, strict=True)
        ]
        torch.testing.assert_close(blend(x, context, torch.full((2, 3, 1), weight)), torch.tensor(wanted))


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


def test_a_row_of_nan_reaches_no_other_row():
    layer, x, context = make(6, 3, context_dim=4), draw(2, 5, 6), draw(2, 5, 4, seed=1)
    wanted = layer(x, context)[0]
    x[1], context[1] = math.nan, math.nan
    torch.testing.assert_close(layer(x, context)[0], wanted)


def test_its_weights_are_captured():
    layer, x, context = make(6, 3, context_dim=4), draw(3, 5, 6), draw(3, 5, 4, seed=1)
    wanted = layer(x, context, mask=PADDING, causal=True)
    with capture_attention(nn.ModuleDict({"it": layer})) as maps:
        found = layer(x, context, mask=PADDING, causal=True)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
    (weights,) = maps["it"]
    assert weights.shape == (3, 3, 5, 5) and not weights.masked_select(~PADDING).any()
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(3, 5))


def test_empty_batches_and_sequences_pass():
    layer = make(6, 3, context_dim=4)
    assert layer(draw(0, 5, 6), draw(0, 1, 4)).shape == (0, 5, 6)
    assert layer(draw(2, 0, 6), draw(2, 1, 4)).shape == (2, 0, 6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(dtype):
    layer, x, context = make(6, 3, context_dim=4), draw(2, 5, 6), draw(2, 5, 4, seed=1)
    wanted = reference.context_attention(layer, x, context)
    found = layer.to(dtype)(x.to(dtype), context.to(dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), wanted, atol=5e-2, rtol=0)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 1, 4), "model_dim: expected an integer of at least 1, got 0"),
        ((6, 0, 4), "num_heads: expected an integer of at least 1, got 0"),
        ((6, 4, 4), "num_heads: expected a number that divides model_dim 6, got 4"),
        ((6, 3, 0), "context_dim: expected an integer of at least 1, got 0"),
        ((6, 3, True), "context_dim: expected an integer of at least 1, got True"),
    ],
)
def test_sizes_are_checked(sizes, message):
    with pytest.raises(ValueError, match=message):
        ContextAttention(*sizes[:2], context_dim=sizes[2])


X, CONTEXT = torch.zeros(2, 5, 6), torch.zeros(2, 5, 4)


@pytest.mark.parametrize(
    ("x", "context", "options", "message"),
    [
        ("word", CONTEXT, {}, "x: expected a floating tensor of shape .batch, length, 6., got str"),
        (X[0], CONTEXT, {}, "x: expected a floating tensor of shape"),
        (X.long(), CONTEXT, {}, "x: expected a floating tensor of shape .batch, length, 6., got torch.int64"),
        (X[..., :5], CONTEXT, {}, r"x: expected a floating tensor .*, got torch.float32 of shape \(2, 5, 5\)"),
        (X.double(), CONTEXT, {}, "x: expected dtype torch.float32"),
        (X.to("meta"), CONTEXT, {}, "x: expected device cpu"),
        (X, None, {}, "context: expected a floating tensor of shape .batch, length, 4., got NoneType"),
        (X, CONTEXT[0], {}, "context: expected a floating tensor of shape"),
        (X, CONTEXT[..., :3], {}, r"context: expected a floating tensor .*, got torch.float32 of shape \(2, 5, 3\)"),
        (X, CONTEXT[:, :4], {}, r"context: expected shape \(2, 5 or 1, 4\), to go with x, got \(2, 4, 4\)"),
        (X, CONTEXT[:1], {}, r"context: expected shape \(2, 5 or 1, 4\), to go with x, got \(1, 5, 4\)"),
        (X, CONTEXT.double(), {}, "context: expected dtype torch.float32"),
        (X, CONTEXT, {"mask": torch.ones(2, 1, 5, 4, dtype=torch.bool)}, "mask: expected a shape"),
        (X, CONTEXT, {"mask": torch.ones(5, 5)}, "mask: expected a boolean tensor"),
        (X, CONTEXT, {"causal": 1}, "causal: expected True or False"),
    ],
)
def test_wrong_inputs_are_refused(x, context, options, message):
    layer = make(6, 3, context_dim=4)
    with pytest.raises(ValueError, match=message):
        layer(x, context, **options)


def test_it_leaves_its_inputs_as_they_are():
    layer, x, context = make(6, 3, context_dim=4), draw(2, 5, 6), draw(2, 5, 4, seed=1)
    before = x.clone(), context.clone()
    layer(x, context)
    assert torch.equal(x, before[0]) and torch.equal(context, before[1])
