import math
import subprocess
import sys

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from attn_core import MultiHeadAttention, attention_with_weights, masks
from attn_core.capture import capture_attention
from attn_core.mechanisms.dense import Dense
from attn_core.mechanisms.flash import FlashAttention, flash_attention
from attn_core.positions import ALiBi, Rotary
from attn_core.transformer import Transformer, TransformerConfig
from tests import reference

SHAPES = {  # B, H, G, T, S, D, Dv
    "plain": (2, 4, 4, 7, 7, 8, 8),
    "odd": (1, 3, 3, 7, 11, 3, 3),
    "grouped": (2, 4, 2, 5, 8, 3, 3),
    "multi-query": (2, 4, 1, 5, 5, 8, 8),
    "wide values": (2, 2, 2, 5, 6, 4, 7),
    "narrow values": (2, 2, 1, 5, 6, 8, 3),
    "one query": (3, 4, 2, 1, 9, 4, 4),
    "one key": (1, 2, 2, 3, 1, 4, 4),
    "more queries than keys": (2, 2, 2, 9, 4, 3, 3),
}
KINDS = ["nothing", "causal", "mask", "padding", "keys of a head", "bias", "bias with -inf rows", "all"]
SMALL = FlashAttention(query_tile=4, key_tile=3)  # divides no length above: each has ragged ends
PATHS = [SMALL, flash_attention]


def inputs(name, dtype=torch.float32, scale=1.0):
    batch, heads, groups, queries, keys, size, value_size = SHAPES[name]
    torch.manual_seed(7)
    q = scale * torch.randn(batch, heads, queries, size)
    k = scale * torch.randn(batch, groups, keys, size)
    v = torch.randn(batch, groups, keys, value_size)
    return [x.to(dtype).requires_grad_() for x in (q, k, v)]


def options(name, kind):
    batch, heads, _, queries, keys, _, _ = SHAPES[name]
    torch.manual_seed(3)
    mask = torch.rand(batch, heads, queries, keys) > 0.4
    mask[0, 0, 0] = False  # an empty row
    bias = torch.randn(heads, queries, keys)
    return {
        "nothing": {},
        "causal": {"causal": True},
        "mask": {"mask": mask},
        "padding": {"mask": masks.padding(torch.tensor([keys, 0, 1][:batch]), keys)},
        "keys of a head": {"mask": mask[0, :, :1], "causal": True},
        "bias": {"bias": bias},
        "bias with -inf rows": {"bias": bias.masked_fill(~mask[0], -math.inf)},
        "all": {"mask": mask, "bias": bias, "causal": True, "scale": -0.3},
    }[kind]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_reference(name, kind, path):
    q, k, v = inputs(name)
    expected, _ = reference.attention(q, k, v, **options(name, kind))
    assert (path(q, k, v, **options(name, kind)) - expected).abs().max() < reference.tolerance(torch.float32)
    q, k, v = (x.double() for x in (q, k, v))
    assert (path(q, k, v, **options(name, kind)) - expected).abs().max() < reference.tolerance(torch.float64)


@pytest.mark.parametrize("kind", ["bias with -inf rows", "all"])
@pytest.mark.parametrize("name", ["grouped", "more queries than keys"])
def test_gradcheck(name, kind):
    chosen = options(name, kind)
    assert torch.autograd.gradcheck(lambda *a: SMALL(*a, **chosen), inputs(name, torch.float64), atol=1e-7)


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


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_pytorchs_kernel_forward_and_backward(causal):
    inputs = [torch.randn(2, 4, 600, 32, requires_grad=True) for _ in range(3)]
    toward = torch.randn(2, 4, 600, 32)
    ours = flash_attention(*inputs, causal=causal)
    torchs = functional.scaled_dot_product_attention(*inputs, is_causal=causal)
    assert (ours - torchs).abs().max() < 2e-6
    for mine, theirs in zip(*(torch.autograd.grad(x, inputs, toward) for x in (ours, torchs)), strict=True):
        assert (mine - theirs).abs().max() < 1e-5


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


@pytest.mark.parametrize("path", PATHS)
def test_an_empty_row_is_silent_whatever_the_values_are(path):
    q, k, v = (x.detach() for x in inputs("plain"))
    out = path(q, k, torch.full_like(v, torch.nan), mask=torch.zeros(7, 7, dtype=torch.bool))
    assert torch.equal(out, torch.zeros_like(out))


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
    q, k, v = inputs("plain")
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


@pytest.mark.parametrize("path", PATHS)
def test_huge_scores_do_not_overflow(path):
    q, k, v = (x.detach() for x in inputs("odd"))
    out = path(1e4 * q, 1e4 * k, v, causal=True)
    assert torch.isfinite(out).all()
    assert (out.double() - reference.attention(1e4 * q, 1e4 * k, v, causal=True)[0]).abs().max() < 1e-5


@pytest.mark.parametrize("positions", [None, Rotary(4), ALiBi(6)])
def test_stands_in_for_dense_in_multi_head_attention(positions):
    layers = [
        MultiHeadAttention(24, 6, num_kv_heads=2, positions=positions, mechanism=mechanism)
        for mechanism in (SMALL, Dense())
    ]
    layers[0].load_state_dict(layers[1].state_dict())
    x, mask = torch.randn(2, 9, 24), masks.padding(torch.tensor([9, 4]), 9)
    ours, theirs = (layer(x, mask=mask, causal=True) for layer in layers)
    assert (ours - theirs).abs().max() < 1e-5
    ours.square().sum().backward()
    theirs.square().sum().backward()
    for mine, wanted in zip(*(layer.parameters() for layer in layers), strict=True):
        assert (mine.grad - wanted.grad).abs().max() < 1e-4
    cache = layers[0].new_cache(2, 9)
    with torch.no_grad():
        parts = [layers[0](part, cache=cache, causal=True) for part in x.split(4, dim=1)]
    assert (torch.cat(parts, 1) - layers[1](x, causal=True)).abs().max() < 1e-5
    with capture_attention(layers[0]) as maps:
        captured = layers[0](x, mask=mask, causal=True)
    assert (captured - theirs).abs().max() < 1e-5 and len(maps) == 1


def test_stands_in_for_dense_in_the_transformer():
    config = TransformerConfig(
        11, model_dim=16, num_heads=4, num_kv_heads=2, num_layers=2, feed_forward_dim=32, dropout=0.0
    )

    def small():
        return FlashAttention(query_tile=3, key_tile=2)

    ours = Transformer(config, encoder_mechanism=small, decoder_mechanism=small, cross_mechanism=small)
    theirs = Transformer(config)
    theirs.load_state_dict(ours.state_dict())
    source, target = torch.randint(11, (3, 7)), torch.randint(11, (3, 5))
    lengths = torch.tensor([7, 2, 4])
    logits = [model(source, lengths, target) for model in (ours, theirs)]
    assert (logits[0] - logits[1]).abs().max() < 1e-5
    for out in logits:
        out.logsumexp(-1).sum().backward()
    for mine, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (mine.grad - wanted.grad).abs().max() < 1e-4


def test_the_module_shows_weights_and_its_sizes():
    q, k, v = inputs("grouped")
    chosen = options("grouped", "all")
    out, weights = FlashAttention().with_weights(q, k, v, **chosen)
    assert (weights - reference.attention(q, k, v, **chosen)[1]).abs().max() < 1e-6
    assert (out - FlashAttention()(q, k, v, **chosen)).abs().max() < 1e-6
    assert repr(FlashAttention(query_tile=3)) == "FlashAttention(query_tile=3)"
    assert not list(FlashAttention().parameters())


@pytest.mark.parametrize("path", PATHS)
def test_a_bias_that_wants_a_gradient_is_refused_and_a_detached_one_taken(path):
    q, k, v = inputs("plain")
    bias = torch.randn(4, 7, 7, requires_grad=True)
    with pytest.raises(ValueError, match="^bias: expected one without .*; attn_core.attention gives one"):
        path(q, k, v, bias=bias)
    expected, _ = reference.attention(q, k, v, bias=bias)
    assert (path(q, k, v, bias=bias.detach()) - expected).abs().max() < reference.tolerance(torch.float32)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", PATHS)
def test_a_gpu_gives_the_same(path, kind):
    q, k, v = (x.detach().cuda() for x in inputs("grouped"))
    chosen = {name: x.cuda() if isinstance(x, torch.Tensor) else x for name, x in options("grouped", kind).items()}
    expected, _ = reference.attention(*inputs("grouped"), **options("grouped", kind))
    assert (path(q, k, v, **chosen).cpu() - expected).abs().max() < reference.tolerance(torch.float32)


def test_neither_the_package_nor_this_module_imports_triton():
    code = "import sys, attn_core, attn_core.mechanisms.flash; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


four = torch.zeros(2, 4, 3, 8)


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
@pytest.mark.parametrize("name", ["query_tile", "key_tile"])
def test_wrong_sizes_of_tiles_are_named(name, size):
    with pytest.raises(ValueError, match=f"{name}: expected an integer of at least 1, got {size}"):
        FlashAttention(**{name: size})
