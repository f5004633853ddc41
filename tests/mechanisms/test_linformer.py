import pytest
import torch
from torch import nn

from attn_core import MultiHeadAttention, attention
from attn_core.mechanisms.linformer import Linformer, shorten
from attn_core.transformer import TransformerConfig, TransformerEncoder
from tests import reference


def test_mixtures_of_independent_keys_are_as_large_as_these():
    torch.manual_seed(0)
    mechanism = Linformer(400, 300)
    for projection in (mechanism.key_projection, mechanism.value_projection):
        assert (projection[0] @ torch.randn(400, 50)).std().item() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_mixes_in_float32(dtype):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 8).to(dtype) for n in (3, 2000, 2000))
    # What 2000 equal terms add up to; a running sum in half precision would stop growing early.
    v = v + 1
    mechanism = Linformer(2000, 4)
    out = mechanism(q, k, v)
    assert out.dtype == dtype
    found, exact = shorten(mechanism.key_projection, k), mechanism.key_projection.double() @ k.double()
    assert ((found - exact).abs() < 0.51 * torch.finfo(dtype).eps * exact.abs() + 1e-5).all()  # rounded once
    expected = mechanism.double()(q.double(), k.double(), v.double())
    assert (out - expected).abs().max() < reference.tolerance(dtype) * expected.abs().max()
    mechanism.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert mechanism(q.float(), k.float(), v.float()).dtype == torch.float32


def test_multi_head_attention_takes_it():
    layer = MultiHeadAttention(16, 4, num_kv_heads=2, mechanism=Linformer(9, 5))
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
