import math

import pytest
import torch
from torch import nn

from attn_core import MultiHeadAttention, attention, masks
from attn_core.mechanisms.linformer import Linformer, shorten
from attn_core.transformer import TransformerConfig, TransformerEncoder
from tests import reference

SHAPES = {  # B, H, G, T, S, D, Dv; at most 11 keys
    "plain": (2, 4, 4, 5, 5, 8, 8),
    "odd": (1, 3, 3, 7, 11, 5, 5),
    "grouped": (2, 6, 2, 4, 9, 8, 8),
    "multi-query": (2, 4, 1, 3, 3, 8, 3),
    "one query": (2, 6, 2, 1, 9, 8, 11),
    "one key": (1, 2, 2, 3, 1, 4, 4),
}
SHARING = {
    "heads": lambda groups: {},
    "nothing": lambda groups: {"num_kv_heads": groups},
    "heads, keys and values": lambda groups: {"share_values": True},
    "keys and values": lambda groups: {"num_kv_heads": groups, "share_values": True},
}


def inputs(name, dtype=torch.float32):
    batch, heads, groups, queries, keys, size, value_size = SHAPES[name]
    torch.manual_seed(7)
    shapes = (batch, heads, queries, size), (batch, groups, keys, size), (batch, groups, keys, value_size)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def hiding(name):
    batch, keys = SHAPES[name][0], SHAPES[name][4]
    return masks.padding(torch.tensor([max(keys - 2, 1), 0][:batch]), keys)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("name", SHAPES)
def test_it_is_attention_over_mixtures(name, sharing, padded):
    q, k, v = inputs(name)
    mechanism = Linformer(11, 6, **SHARING[sharing](k.shape[1]))
    mask = hiding(name) if padded else None
    keys = reference.linformer_slots(mechanism.key_projection, k, mask)
    by_value = mechanism.key_projection if mechanism.share_values else mechanism.value_projection
    values = reference.linformer_slots(by_value, v, mask)
    expected, _ = reference.attention(q, keys, values, scale=0.3)
    out = mechanism(q, k, v, mask=mask, scale=0.3)
    assert (out - expected).abs().max() < 2 * reference.tolerance(torch.float32)
    if padded and len(q) > 1:  # nothing to attend to
        assert torch.equal(out[1], torch.zeros_like(out[1]))


def test_identity_projections_make_it_dense_attention():
    q, k, v = inputs("odd")
    mechanism = Linformer(11, 11)
    with torch.no_grad():
        mechanism.key_projection.copy_(torch.eye(11))
        mechanism.value_projection.copy_(torch.eye(11))
    expected, _ = reference.attention(q, k, v)
    assert (mechanism(q, k, v) - expected).abs().max() < reference.tolerance(torch.float32)


def test_what_is_shared_is_one_parameter():
    assert [p.shape for p in Linformer(11, 6).parameters()] == [(1, 6, 11)] * 2
    assert [p.shape for p in Linformer(11, 6, num_kv_heads=3).parameters()] == [(3, 6, 11)] * 2
    shared = Linformer(11, 6, share_values=True)
    assert [p.shape for p in shared.parameters()] == [(1, 6, 11)]
    other = Linformer(11, 6, share_values=True)
    other.load_state_dict(shared.state_dict())
    assert torch.equal(other.key_projection, shared.key_projection)
    other.load_state_dict(shared.state_dict(), assign=True)
    assert len(list(other.parameters())) == 1


def test_mixtures_of_independent_keys_are_as_large_as_these():
    torch.manual_seed(0)
    mechanism = Linformer(400, 300)
    for projection in (mechanism.key_projection, mechanism.value_projection):
        assert (projection[0] @ torch.randn(400, 50)).std().item() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("sharing", SHARING)
def test_gradcheck(sharing):
    torch.manual_seed(0)
    q, k = (torch.randn(2, h, 4, 3, dtype=torch.float64, requires_grad=True) for h in (4, 2))
    v = torch.randn(2, 2, 4, 2, dtype=torch.float64, requires_grad=True)
    mechanism = Linformer(5, 3, **SHARING[sharing](2)).double()
    mask = torch.tensor([True, False, True, True])

    def call(q, k, v, *weights):
        return mechanism(q, k, v, mask=mask)

    assert torch.autograd.gradcheck(call, (q, k, v, *mechanism.parameters()), atol=1e-6)


def test_padding_never_matters():
    q, k, v = inputs("grouped")
    mechanism, mask = Linformer(11, 6), masks.padding(torch.tensor([5, 9]), 9)
    out = mechanism(q, k, v, mask=mask)
    changed_k, changed_v = k.detach().clone(), v.detach().clone()
    changed_k[0, :, 5:], changed_v[0, :, 5:] = math.nan, math.inf
    assert torch.equal(mechanism(q, changed_k, changed_v, mask=mask), out)
    shorter = mechanism(q[:1], k[:1, :, :5], v[:1, :, :5])
    assert (shorter - out[:1]).abs().max() < 1e-6
    assert (mechanism(q, k, v, mask=mask[1, 0, 0]) - mechanism(q, k, v)).abs().max() == 0
    out.square().sum().backward()
    assert k.grad[0, :, 5:].abs().max() == 0 and v.grad[0, :, 5:].abs().max() == 0


@pytest.mark.parametrize("sharing", ["heads", "nothing"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_mixes_in_float32(dtype, sharing):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 8).to(dtype) for n in (3, 2000, 2000))
    # What 2000 equal terms add up to; a running sum in half precision would stop growing early.
    v = v + 1
    mechanism = Linformer(2000, 4, **SHARING[sharing](2))
    out = mechanism(q, k, v)
    assert out.dtype == dtype
    found, exact = shorten(mechanism.key_projection, k), mechanism.key_projection.double() @ k.double()
    assert ((found - exact).abs() < 0.51 * torch.finfo(dtype).eps * exact.abs() + 1e-5).all()  # rounded once
    expected = mechanism.double()(q.double(), k.double(), v.double())
    assert (out - expected).abs().max() < reference.tolerance(dtype) * expected.abs().max()
    mechanism.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert mechanism(q.float(), k.float(), v.float()).dtype == torch.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": torch.zeros(2, 4, 7, 8), "v": torch.zeros(2, 4, 7, 8)}, "k: expected at most 6 keys, .* got 7"),
        (
            {"q": torch.zeros(2, 8, 5, 8), "k": torch.zeros(2, 2, 5, 8), "v": torch.zeros(2, 2, 5, 8)},
            "k: expected 4 he",
        ),
        ({"causal": True}, "causal: expected False, .* got True"),
        ({"bias": torch.zeros(5, 5)}, "bias: expected None"),
        ({"mask": torch.ones(5, 5, dtype=torch.bool)}, r"mask: expected one that hides keys .* got \(5, 5\)"),
        ({"mask": torch.ones(4, 1, 5, dtype=torch.bool)}, "mask: expected one that hides keys"),
        ({"mask": torch.ones(5)}, "mask: expected a boolean tensor"),
        ({"v": torch.zeros(2, 4, 6, 8)}, "v: expected shape"),
        ({"scale": math.inf}, "scale: expected a finite number"),
    ],
)
def test_wrong_input_is_refused(changes, message):
    arguments = dict(zip("qkv", torch.zeros(3, 2, 4, 5, 8), strict=True)) | changes
    q, k, v = (arguments.pop(name) for name in "qkv")
    with pytest.raises(ValueError, match=message):
        Linformer(6, 4, num_kv_heads=4)(q, k, v, **arguments)


@pytest.mark.parametrize("sizes", [{"max_length": 0}, {"slots": 0}, {"num_kv_heads": 1.5}])
def test_wrong_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match=f"{next(iter(sizes))}: expected"):
        Linformer(**({"max_length": 4} | sizes))


def test_multi_head_attention_takes_it():
    layer = MultiHeadAttention(16, 4, num_kv_heads=2, mechanism=Linformer(9, 5, num_kv_heads=2))
    queries, keys = torch.randn(2, 4, 16), torch.randn(2, 7, 16)
    out = layer(queries, keys)
    k, v = layer.project_kv(keys)
    keys = reference.linformer_slots(layer.mechanism.key_projection, k)
    values = reference.linformer_slots(layer.mechanism.value_projection, v)
    heads = attention(layer.query(queries).view(2, 4, 4, 4).transpose(1, 2), keys.float(), values.float())
    assert (out - layer.out(heads.transpose(1, 2).flatten(2))).abs().max() < 1e-5
    with pytest.raises(ValueError, match="causal: expected False"):
        layer(queries, causal=True)


@pytest.mark.parametrize("shared", [False, True])
def test_layers_of_a_transformer_have_their_own_or_share_one(shared):
    config = TransformerConfig(13, model_dim=16, num_heads=4, num_layers=2, feed_forward_dim=24, dropout=0.0)
    one = Linformer(12, 5)
    model = TransformerEncoder(config, mechanism=(lambda: one) if shared else (lambda: Linformer(12, 5)))
    found = [p for name, p in model.named_parameters() if "projection" in name]
    assert len(found) == (2 if shared else 4)
    tokens, lengths = torch.randint(4, 13, (2, 9)), torch.tensor([9, 6])
    states = model(tokens, lengths)
    longer = model(nn.functional.pad(tokens, (0, 3)), lengths)
    assert (states[1, :6] - longer[1, :6]).abs().max() < 1e-5
    states.square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in found)
