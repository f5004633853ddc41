import math
import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attn_core import attention_with_weights, masks
from attn_core.mechanisms.flash import FlashAttention, flash_attention
from tests import reference

SMALL = FlashAttention(query_tile=4, key_tile=3)  # neither divides 7: the last tiles are ragged


@pytest.mark.parametrize("path", [flash_attention, FlashAttention(query_tile=50, key_tile=70)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("batch", "heads", "groups", "queries", "keys"),
    [(1, 2, 2, 700, 700), (2, 4, 2, 300, 1100), (40, 8, 2, 9, 530), (2, 3, 3, 600, 90)],
)
def test_gradients_equal_the_explicit_paths_across_tiles_of_the_default_size(
    batch, heads, groups, queries, keys, causal, path
):
    q, toward = torch.randn(batch, heads, queries, 16), torch.randn(batch, heads, queries, 24)
    k, v = torch.randn(batch, groups, keys, 16), torch.randn(batch, groups, keys, 24)
    mask = torch.rand(batch, 1, 1, keys) > 0.1
    ours, plain = [[x.clone().to(dtype).requires_grad_() for x in (q, k, v)] for dtype in (q.dtype, torch.float64)]
    out = path(*ours, mask=mask, causal=causal)
    expected, _ = attention_with_weights(*plain, mask=mask, causal=causal)
    assert (out - expected).abs().max() < reference.tolerance(torch.float32)
    out.backward(toward)
    expected.backward(toward.double())
    for mine, theirs in zip(ours, plain, strict=True):
        assert (mine.grad - theirs.grad).abs().max() < 1e-5 * theirs.grad.abs().max()


@pytest.mark.parametrize("tiles", [(1, 1), (1, 64), (64, 1), (2, 5), (5, 2), (1000, 1000)])
def test_the_size_of_the_tiles_changes_nothing_but_rounding(tiles):
    q, k, v = (torch.randn(2, 4, 33, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask, bias = torch.rand(33, 33) > 0.3, torch.randn(2, 1, 33, 33)
    settings = {"mask": mask, "bias": bias, "causal": True}
    module = FlashAttention(query_tile=tiles[0], key_tile=tiles[1])
    out, expected = module(q, k, v, **settings), flash_attention(q, k, v, **settings)
    assert (out - expected).abs().max() < 1e-13
    found, wanted = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (out, expected))
    assert all((x - y).abs().max() < 1e-12 for x, y in zip(found, wanted, strict=True))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_errs_at_most_twice_as_much_as_the_naive_path_in_it(dtype, scale, causal):
    halves = [(factor * torch.randn(1, 4, 300, 32)).to(dtype) for factor in (scale, scale, 1.0)]
    toward = torch.randn(1, 4, 300, 32).to(dtype)
    seen = masks.causal(300, 300) if causal else torch.ones(300, 300, dtype=torch.bool)

    def naive(q, k, v):
        return (q @ k.mT / math.sqrt(32)).masked_fill(~seen, -math.inf).softmax(-1) @ v

    def run(path, dtype):
        q, k, v = (x.to(dtype).requires_grad_() for x in halves)
        out = path(q, k, v)
        assert out.dtype == dtype
        return [out, *torch.autograd.grad(out, (q, k, v), toward.to(dtype))]

    exact = run(naive, torch.float64)
    ours, theirs = (
        [(x.double() - y).abs().max().item() for x, y in zip(run(path, dtype), exact, strict=True)]
        for path in (lambda q, k, v: flash_attention(q, k, v, causal=causal), naive)
    )
    assert all(mine <= 2 * their for mine, their in zip(ours, theirs, strict=True)), (ours, theirs)


def test_half_precision_sums_in_float32():
    # 4096 equal weights: a running sum kept in bfloat16 would stop growing at 256 ones.
    q, k, v = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 4096, 4), torch.ones(1, 1, 4096, 4)
    for module in (FlashAttention(key_tile=1), FlashAttention(key_tile=4096)):
        assert torch.equal(module(q.bfloat16(), k.bfloat16(), v.bfloat16()), torch.ones(1, 1, 1, 4).bfloat16())


def test_the_gradient_may_come_expanded_and_some_inputs_may_need_none():
    q, k, v = (torch.randn(2, 4, 7, 8, requires_grad=True) for _ in range(3))
    (only,) = torch.autograd.grad(SMALL(q, k.detach(), v.detach()).sum(), q)  # sum passes back an expanded scalar
    (expected,) = torch.autograd.grad(attention_with_weights(q, k, v)[0].sum(), q)
    assert (only - expected).abs().max() < 1e-6
    assert not SMALL(q.detach(), k.detach(), v.detach()).requires_grad


def test_no_tile_in_the_future_is_computed():
    class Products(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += func is torch.ops.aten.bmm.default
            return func(*args, **(kwargs or {}))

    q, k, v = (torch.randn(1, 1, n, 4) for n in (8, 12, 12))
    with Products() as products:
        FlashAttention(query_tile=2, key_tile=2)(q, k, v, causal=True)
    assert products.count == 2 * (3 + 4 + 5 + 6)  # of 6 tiles of keys for each of 4 tiles of queries


def test_neither_the_package_nor_this_module_imports_triton():
    code = "import sys, attn_core, attn_core.mechanisms.flash; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
