import pytest
import torch

from attn_core import AdditiveAttention, masks
from tests import reference


def build(dtype=torch.float32, batch=2, heads=4, groups=2, queries=5, keys=7, value_size=6):
    torch.manual_seed(4)
    layer = AdditiveAttention(3, 8)
    for parameter in layer.parameters():
        parameter.data.mul_(3)  # small first weights leave attention flat and the tests blunt
    q = torch.randn(batch, heads, queries, 3)
    k, v = torch.randn(batch, groups, keys, 3), torch.randn(batch, groups, keys, value_size)
    return layer.to(dtype), [x.to(dtype).requires_grad_() for x in (q, k, v)]


def options(kind):
    torch.manual_seed(5)
    mask = torch.rand(2, 4, 5, 7) > 0.4
    mask[0, 0, 0] = False
    return {
        "nothing": {},
        "causal": {"causal": True},
        "mask": {"mask": mask},
        "bias": {"bias": torch.randn(4, 5, 7)},
        "all": {"mask": mask, "bias": torch.randn(5, 7), "causal": True},
    }[kind]


def expected(layer, q, k, v, *, mask=None, bias=None, causal=False):
    """Attention of the reference: additive scores as a bias, its own products switched off."""
    scores = reference.additive_scores(layer.score, q, k)
    extra = scores if bias is None else scores + bias.double()
    return reference.attention(q, k, v, mask=mask, bias=extra, causal=causal, scale=0.0)


@pytest.mark.parametrize("kind", ["nothing", "causal", "mask", "bias", "all"])
def test_it_equals_the_reference(kind):
    layer, inputs = build()
    out, weights = layer.with_weights(*inputs, **options(kind))
    wanted_out, wanted_weights = expected(layer, *inputs, **options(kind))
    torch.testing.assert_close(out.double(), wanted_out, atol=3e-6, rtol=0)
    torch.testing.assert_close(weights.double(), wanted_weights, atol=3e-6, rtol=0)
    assert torch.equal(layer(*inputs, **options(kind)), out)


def test_gradients_are_right():
    layer, inputs = build(torch.float64, queries=2, keys=3)
    parameters = tuple(layer.parameters())

    def call(q, k, v, *_):
        return layer(q, k, v, causal=True, mask=masks.padding(torch.tensor([3, 2]), 3))

    assert torch.autograd.gradcheck(call, (*inputs, *parameters))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_float64(dtype):
    layer, inputs = build(dtype)
    wanted, _ = expected(layer, *inputs)
    found = layer(*inputs)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), wanted, atol=4 * reference.tolerance(dtype), rtol=0)


def test_wrong_input_is_named():
    layer, (q, k, v) = build()
    with pytest.raises(ValueError, match="^scale: expected None, since additive scores are not scaled, got 0.5"):
        layer(q, k, v, scale=0.5)
    with pytest.raises(ValueError, match="^hidden_dim: expected an integer of at least 1, got 0"):
        AdditiveAttention(3, 0)
    with pytest.raises(ValueError, match="^keys: expected size 3 on the last axis, got 4"):
        layer(*(torch.zeros(1, 1, 2, 4) for _ in range(3)))
    with pytest.raises(ValueError, match="^mask: expected a boolean tensor"):
        layer(q, k, v, mask=torch.ones(5, 7))
