import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from attn_core import Dense, attend, attention, attention_with_weights, masks
from attn_core.mechanisms.dense import masked_softmax
from tests import reference


def inputs(dtype=torch.float32, groups=4, value_size=8):
    torch.manual_seed(7)
    return [torch.randn(2, h, 5, d).to(dtype).requires_grad_() for h, d in ((4, 8), (groups, 8), (groups, value_size))]


def test_softmax_sums_in_float32_even_when_scores_are_half():
    # 4096 equal weights of 1/4096: a running sum kept in bfloat16 would stop growing at 256 ones.
    weights = masked_softmax(torch.zeros(1, 4096, dtype=torch.bfloat16))
    assert weights.dtype == torch.bfloat16
    assert weights.double().sum().item() == pytest.approx(1.0, abs=1e-3)


def test_bias_receives_its_gradient():
    q, k, v = inputs()
    bias = torch.randn(4, 5, 5, requires_grad=True)
    (fast,) = torch.autograd.grad(attention(q, k, v, bias=bias).square().sum(), bias)
    (plain,) = torch.autograd.grad(attention_with_weights(q, k, v, bias=bias)[0].square().sum(), bias)
    assert plain.abs().max() > 1e-3
    assert (fast - plain).abs().max() < 1e-5


@pytest.mark.parametrize(("groups", "value_size"), [(2, 8), (4, 11), (2, 3)])
def test_the_fast_path_stays_on_a_fused_kernel(groups, value_size):
    q, k, v = (x.detach() for x in inputs(groups=groups, value_size=value_size))
    padded = masks.padding(torch.tensor([3, 4]), k.shape[2])
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        per_head = torch.zeros(q.shape[1], q.shape[2], k.shape[2])
        for chosen in ({}, {"causal": True}, {"mask": padded}, {"mask": padded, "causal": True}, {"bias": per_head}):
            attention(q, k, v, **chosen)
        attention(q.transpose(-2, -1).contiguous().transpose(-2, -1), k, v)


def test_agrees_with_pytorch_and_with_d2l(d2l):
    q, k, v = (x.detach() for x in inputs())
    lengths = torch.tensor([3, 5])
    ours = attention(q, k, v, mask=masks.padding(lengths, 5))
    torchs = functional.scaled_dot_product_attention(q, k, v, attn_mask=masks.padding(lengths, 5))
    assert (ours - torchs).abs().max() < 1e-6
    peer = d2l.DotProductAttention(0.0).eval()
    theirs = peer(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), lengths.repeat_interleave(4))
    assert (ours.flatten(0, 1) - theirs).abs().max() < 1e-6
    # Where d2l differs: a row with nothing to attend to gets the mean of the padding.
    nothing = torch.tensor([0, 5])
    assert attention(q, k, v, mask=masks.padding(nothing, 5))[0].abs().max() == 0
    uniform = peer(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), nothing.repeat_interleave(4))[0]
    assert (uniform - v[0, 0].mean(0)).abs().max() < 1e-6


def test_dense_is_a_mechanism_with_dropout_only_in_training():
    q, k, v = inputs(groups=2)
    mechanism = Dense(dropout=0.5)
    mechanism.eval()
    assert torch.equal(mechanism(q, k, v, causal=True), attention(q, k, v, causal=True))
    mechanism.train()
    torch.manual_seed(0)
    runs = torch.stack([mechanism(q, k, v) for _ in range(400)]).mean(0)
    assert not torch.equal(mechanism(q, k, v), attention(q, k, v))
    assert (runs - attention(q, k, v)).abs().max() < 0.15  # dropout keeps the expectation
    assert isinstance(mechanism, nn.Module) and "dropout=0.5" in repr(mechanism)


BOTH = [attention, lambda *a, **o: attention_with_weights(*a, **o)[0]]


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_what_a_large_bias_says(path, dtype):
    q, k, v = (x.detach() for x in inputs(dtype))
    ramp = 0.5 * torch.arange(5.0) + 1000
    expected, _ = reference.attention(q, k, v, bias=ramp)
    assert (path(q, k, v, bias=ramp).double() - expected).abs().max() < reference.tolerance(dtype, scale=1.5)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float16, 1e5), (torch.bfloat16, 3000.0)])
def test_on_a_cpu_half_precision_adds_a_large_bias_to_an_equally_large_score(dtype, size):
    q, k = torch.tensor([[[[40.0]]]]).to(dtype), torch.tensor([[[[0.0], [size / 40], [0.0]]]]).to(dtype)
    v = torch.randn(1, 1, 3, 4).to(dtype)
    bias = torch.tensor([0.0, -size, -1.0])
    expected, _ = reference.attention(q, k, v, bias=bias, scale=1.0)
    assert (attention(q, k, v, bias=bias, scale=1.0).double() - expected).abs().max() < reference.tolerance(dtype)


def test_attend_weighs_the_values():
    out, weights = attend(torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([[4.0], [8.0]]))
    assert torch.allclose(weights, torch.tensor([[0.25, 0.75]]))
    assert torch.allclose(out, torch.tensor([[7.0]]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dropout_keeps_the_dtype_under_autocast_and_empty_rows_silent(dtype):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 4, 8, dtype=dtype) for _ in range(3))
    v[0, :, 0] = math.nan
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    dense = Dense(dropout=0.5).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = dense.with_weights(q, k, v, mask=mask)
        assert out.dtype == dense(q, k, v, mask=mask).dtype == dtype
    assert torch.equal(out[:, :, 2], torch.zeros(1, 2, 8, dtype=dtype))


def test_dropout_computes_in_float32_under_autocast():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    outputs = []
    for enabled in (False, True):
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            outputs.append(Dense(dropout=0.5).with_weights(q, k, v)[0])
    torch.testing.assert_close(*outputs)


def test_dropout_leaves_the_mean_as_it_is_and_keeps_the_weights():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, 3, 8) for heads in (4, 2, 2))
    expected, weights = attention_with_weights(q, k, v)
    draws = [Dense(dropout=0.2).with_weights(q, k, v) for _ in range(400)]
    assert torch.equal(draws[0][1], weights)
    torch.testing.assert_close(torch.stack([out for out, _ in draws]).mean(0), expected, atol=0.15, rtol=0)


@pytest.mark.parametrize("layout", ["sparse_coo", "jagged"])
def test_sparse_and_nested_tensors_are_refused(layout):
    x = torch.randn(2, 3, 4, 5)
    other = x.to_sparse() if layout == "sparse_coo" else torch.nested.nested_tensor(list(x), layout=torch.jagged)
    with pytest.raises(ValueError, match=f"v: expected a dense tensor of at least 16 bits a number, got .*{layout}"):
        attention(x, x, other)
