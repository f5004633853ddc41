import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attn_core import MultiHeadAttention, device, masks
from attn_core.capture import capture_attention
from attn_core.mechanisms import window
from attn_core.mechanisms.window import SlidingWindow, sliding_window_attention
from attn_core.positions import ALiBi, Rotary
from attn_core.transformer import Transformer, TransformerConfig
from benchmarks.measure import fresh, peak_memory
from tests import reference

SHAPES = {  # B, H, G, T, S, D, Dv
    "plain": (2, 2, 2, 9, 9, 4, 4),
    "grouped, wide values": (2, 4, 2, 7, 7, 3, 5),
    "multi-query, more keys": (1, 4, 1, 5, 11, 4, 3),
    "more queries than keys": (1, 2, 1, 11, 4, 4, 4),
    "one query": (2, 4, 2, 1, 8, 4, 4),
}
WINDOWS = {  # before, after, dilation
    "two-sided": (2, 2, 1),
    "lopsided": (3, 1, 1),
    "own key": (0, 0, 1),
    "ahead": (0, 3, 1),
    "dilated": (1, 2, 3),
    "dilated beyond the end": (2, 2, 40),
    "wider than all": (50, 50, 1),
}


def inputs(name, dtype=torch.float64, scale=1.0):
    batch, heads, groups, queries, keys, size, value_size = SHAPES[name]
    torch.manual_seed(7)
    shapes = (batch, heads, queries, size), (batch, groups, keys, size), (batch, groups, keys, value_size)
    return [(s * torch.randn(x)).to(dtype).requires_grad_() for s, x in zip((scale, scale, 1), shapes, strict=True)]


def options(name, kind):
    batch, heads, _, queries, keys, _, _ = SHAPES[name]
    torch.manual_seed(3)
    mask = torch.rand(batch, heads, queries, keys) > 0.4
    mask[0, 0, 0] = False
    bias = torch.randn(heads, queries, keys)
    return {
        "nothing": {},
        "causal": {"causal": True},
        "mask": {"mask": mask},
        "padding": {"mask": masks.padding(torch.tensor([keys // 2, 0][:batch]), keys)},
        "bias with -inf rows": {"bias": bias.masked_fill(~mask[0], -math.inf)},
        "all": {"mask": mask, "bias": bias[:1], "causal": True, "scale": -0.3},
    }[kind]


def dense(q, k, v, place, *, mask=None, **rest):
    """Dense attention in float64 under the same mask, by the reference: output and weights."""
    allowed = reference.window(q.shape[2], k.shape[2], *place)
    return reference.attention(q, k, v, mask=allowed if mask is None else mask & allowed, **rest)


@pytest.fixture(params=[(2, ["cpu"]), (window.TILE, ["cpu"]), (2, []), (window.TILE, [])])
def tile(request, monkeypatch):
    """Small and large blocks; one by one as on a CPU, and all at once."""
    size, tiled = request.param
    monkeypatch.setattr(window, "TILE", size)
    monkeypatch.setattr(device, "TILED", tiled)


@pytest.mark.parametrize("kind", ["padding", "bias with -inf rows", "all"])
@pytest.mark.parametrize("place", WINDOWS)
@pytest.mark.parametrize("name", SHAPES)
def test_equals_dense_attention_under_the_same_mask(name, place, kind, monkeypatch):
    (before, after, dilation), settings = WINDOWS[place], options(name, kind)
    mechanism = SlidingWindow(before, after, dilation=dilation)
    expected, weights = dense(*inputs(name), WINDOWS[place], **settings)
    explicit, found = mechanism.with_weights(*inputs(name), **settings)
    assert (explicit - expected).abs().max() < reference.tolerance(torch.float64)
    assert (found - weights).abs().max() < reference.tolerance(torch.float64)
    single = [x.float() for x in inputs(name)]
    for rows, tiled in ((2, ["cpu"]), (window.TILE, ["cpu"]), (2, []), (5, [])):
        monkeypatch.setattr(window, "TILE", rows)
        monkeypatch.setattr(device, "TILED", tiled)
        assert (mechanism(*inputs(name), **settings) - expected).abs().max() < reference.tolerance(torch.float64)
        assert (mechanism(*single, **settings) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["nothing", "padding", "all"])
@pytest.mark.parametrize("place", ["lopsided", "dilated"])
@pytest.mark.parametrize("name", ["plain", "grouped, wide values", "more queries than keys"])
def test_gradcheck(name, place, kind, tile):
    before, after, dilation = WINDOWS[place]
    mechanism, settings = SlidingWindow(before, after, dilation=dilation), options(name, kind)
    assert torch.autograd.gradcheck(lambda *a: mechanism(*a, **settings), inputs(name), atol=1e-7, fast_mode=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "dilation"), [(500, 1), (131, 1), (401, 3), (63, 2)])
def test_long_and_odd_lengths_forward_and_backward(length, dilation, causal, tile):
    q, toward = torch.randn(2, 4, length, 16), torch.randn(2, 4, length, 16)
    k, v, mask = torch.randn(2, 2, length, 16), torch.randn(2, 2, length, 16), torch.rand(2, 1, 1, length) > 0.2
    ours, plain = [[x.clone().to(dtype).requires_grad_() for x in (q, k, v)] for dtype in (q.dtype, torch.float64)]
    mechanism = SlidingWindow(30, 20, dilation=dilation)
    out = mechanism(*ours, mask=mask, causal=causal)
    allowed = reference.window(length, length, 30, 20, dilation) & mask
    scores = plain[0] @ plain[1].repeat_interleave(2, 1).mT / 4
    if causal:
        allowed = allowed & torch.ones(length, length).tril().bool()
    rows = allowed.any(-1, keepdim=True)
    weights = torch.softmax(torch.where(allowed | ~rows, scores, -math.inf), -1) * rows
    expected = weights @ plain[2].repeat_interleave(2, 1)
    assert (out - expected).abs().max() < 1e-5
    out.backward(toward)
    expected.backward(toward.double())
    for mine, theirs in zip(ours, plain, strict=True):
        assert (mine.grad - theirs.grad).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["plain", "grouped, wide values", "more queries than keys"])
def test_global_keys_join_the_softmax_of_the_window(name, tile):
    q, k, v = inputs(name)
    global_k, global_v = torch.randn_like(k[:, :, :3]), torch.randn_like(v[:, :, :3])
    shown = torch.rand(q.shape[0], q.shape[1], q.shape[2], 3) > 0.5
    mask = torch.rand(len(q), 1, 1, k.shape[2]) > 0.5
    arguments = [x.detach().requires_grad_() for x in (q, k, v, global_k, global_v)]

    def ours(q, k, v, global_k, global_v):
        shared = {"global_k": global_k, "global_v": global_v, "global_mask": shown}
        return sliding_window_attention(q, k, v, 2, 1, mask=mask, **shared)

    window_mask = (reference.window(q.shape[2], k.shape[2], 2, 1, 1) & mask).expand(*q.shape[:3], -1)
    both = torch.cat((shown, window_mask), -1)
    expected, _ = reference.attention(q, torch.cat((global_k, k), 2), torch.cat((global_v, v), 2), mask=both)
    assert (ours(*arguments) - expected).abs().max() < 1e-12
    assert torch.autograd.gradcheck(ours, arguments, atol=1e-7, fast_mode=True)


def test_an_empty_row_gives_zeros_and_zero_gradient(tile):
    q, k, v = inputs("plain")
    mask = torch.ones(2, 1, 9, 9, dtype=torch.bool)
    mask[0, 0, 4, 3:6] = False  # its window, not all its keys
    broken = v.detach().clone()
    broken[0, :, 4] = math.nan  # an empty row is silent whatever the values are
    assert torch.equal(SlidingWindow(1)(q, k, broken, mask=mask)[0, :, 4], torch.zeros(2, 4, dtype=q.dtype))
    out = SlidingWindow(1)(q, k, v, mask=mask)
    out.square().sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in (q, k, v))
    assert torch.equal(q.grad[0, :, 4], torch.zeros_like(q.grad[0, :, 4])) and q.grad[0, :, 5].abs().max() > 0


def test_tokens_beyond_the_window_never_matter(tile):
    q, k, v = (x.detach() for x in inputs("plain"))
    far_k, far_v = k.clone(), v.clone()
    far_k[:, :, 7] += 100
    far_v[:, :, 7] -= 100
    same = SlidingWindow(2)(q, far_k, far_v) - SlidingWindow(2)(q, k, v)
    assert same[:, :, :5].abs().max() == 0 and same[:, :, 5:].abs().amax((0, 1, 3)).min() > 1
    late = SlidingWindow(2)(q, far_k, far_v, causal=True) - SlidingWindow(2)(q, k, v, causal=True)
    assert late[:, :, :7].abs().max() == 0 and late[:, :, 7:].abs().amax((0, 1, 3)).min() > 1


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_its_dtype_and_its_accuracy(dtype, scale):
    q, k, v = inputs("plain", dtype, scale)
    out = SlidingWindow(2)(q, k, v)
    expected, _ = dense(q, k, v, (2, 2, 1))
    assert out.dtype == dtype
    assert (out.double() - expected).abs().max() < reference.tolerance(dtype, scale=scale)
    assert all(x.dtype == dtype for x in torch.autograd.grad(out.sum(), (q, k, v)))


def test_weights_sum_in_float32_even_when_all_is_half():
    # 2049 weights in the window: summed in bfloat16, the sum would stop growing at 256 of them.
    q, k, v = torch.zeros(1, 1, 2049, 4), torch.zeros(1, 1, 2049, 4), torch.ones(1, 1, 2049, 4)
    out = SlidingWindow(2048)(*(x.bfloat16() for x in (q, k, v)))
    assert torch.equal(out, torch.ones_like(out))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert SlidingWindow(3)(q, k, v + 1e-4).sub(1 + 1e-4).abs().max() < 1e-6


class Largest(TorchDispatchMode):
    """The most elements that a tensor made within it holds in memory."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, torch.Tensor):
                self.most = max(self.most, x.untyped_storage().nbytes() // x.element_size())
        return made


@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_grows_with_the_square_of_the_length(causal):
    length, mask = 2048, torch.rand(1, 1, 1, 2048) > 0.1
    q, k, v = (torch.randn(1, 2, length, 8, requires_grad=True) for _ in range(3))
    with Largest() as largest:
        SlidingWindow(16)(q, k, v, mask=mask, causal=causal).sum().backward()
    assert largest.most <= 2 * q.numel()  # one tile of scores has as many
    with Largest() as largest:
        SlidingWindow(64).with_weights(q, k, v)
    assert largest.most >= length**2  # the measure sees the explicit path's


def peak_at_8192():
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, 8, 8192, 64) for _ in range(3))
    SlidingWindow(256)(*(x[:, :, :600] for x in (q, k, v)))  # loads the kernels
    return peak_memory(lambda: SlidingWindow(256)(q, k, v), torch.device("cpu"))["memory"]


def test_peak_memory_of_a_process_at_8192():
    # The scores of all pairs would take 2,048 MiB, those within the windows 128; 16 of these are the output.
    assert fresh(peak_at_8192) < 48


@pytest.mark.parametrize("positions", [None, Rotary(4), ALiBi(4)])
def test_in_multi_head_attention_with_a_cache(positions):
    layer = MultiHeadAttention(16, 4, num_kv_heads=2, positions=positions, mechanism=SlidingWindow(3))
    x = torch.randn(2, 10, 16)
    whole = layer(x, causal=True)
    with capture_attention(layer) as maps:
        assert (layer(x, causal=True) - whole).abs().max() < 1e-6
    (weights,) = (found for per_layer in maps.values() for found in per_layer)
    assert torch.equal(weights[0, 0] > 0, reference.window(10, 10, 3, 0, 1))
    cache = layer.new_cache(2, 10)
    with torch.no_grad():
        parts = [layer(part, causal=True, cache=cache) for part in x.split([4, 1, 1, 4], 1)]
    assert (torch.cat(parts, 1) - whole).abs().max() < 1e-6


@torch.no_grad()
def test_a_cache_whose_rows_differ_is_refused_and_left_as_it_was():
    layer, x = MultiHeadAttention(16, 4, mechanism=SlidingWindow(3)), torch.randn(2, 10, 16)
    cache = layer.new_cache(2, 10)
    layer(x[:, :4], causal=True, cache=cache)
    wanted = "expected rows of one length without padding, as SlidingWindow needs, got "
    with pytest.raises(ValueError, match=rf"^lengths: {wanted}tensor\(\[3, 2\]\)"):
        layer(x[:, 4:7], causal=True, cache=cache, lengths=torch.tensor([3, 2]))
    assert cache.lengths.tolist() == [4, 4]
    cache.truncate(torch.tensor([4, 2]))
    with pytest.raises(ValueError, match=rf"^cache: {wanted}tensor\(\[4, 2\]\)"):
        layer(x[:, 4:5], causal=True, cache=cache)
    assert cache.lengths.tolist() == [4, 2]
    cache.truncate(torch.tensor([2, 2]))
    found = layer(x[:, 2:], causal=True, cache=cache)
    assert (found - layer(x, causal=True)[:, 2:]).abs().max() < 1e-6


def test_in_the_transformer():
    config = TransformerConfig(11, model_dim=16, num_heads=4, num_layers=2, feed_forward_dim=32, dropout=0.0)
    source, target, lengths = torch.randint(11, (2, 9)), torch.randint(11, (2, 7)), torch.tensor([9, 5])

    def logits(**mechanisms):
        torch.manual_seed(1)
        return Transformer(config, **mechanisms)(source, lengths, target)

    def wide():
        return SlidingWindow(20)

    same = logits(encoder_mechanism=wide, decoder_mechanism=wide)
    assert (same - logits()).abs().max() < 1e-5
    assert (logits(encoder_mechanism=lambda: SlidingWindow(1)) - logits()).abs().max() > 1e-3


ONES = torch.ones(2, 4, 3, 4)
GLOBAL = {"global_k": ONES, "global_v": ONES}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SlidingWindow(-1), "before: expected an integer of at least 0, got -1"),
        (lambda: SlidingWindow(True), "before: expected an integer of at least 0, got True"),
        (lambda: SlidingWindow(1, 2.0), "after: expected an integer of at least 0, got 2.0"),
        (lambda: SlidingWindow(1, dilation=0), "dilation: expected an integer of at least 1, got 0"),
        (lambda: SlidingWindow(1)(ONES, ONES[:, :3], ONES[:, :3]), "k: expected a number of heads that divides"),
        (lambda: SlidingWindow(1)(ONES, ONES, ONES, mask=torch.ones(3, 3)), "mask: expected a boolean tensor"),
        (lambda: SlidingWindow(1).with_weights(ONES, ONES, ONES, mask=ONES), "mask: expected a boolean tensor"),
        (
            lambda: sliding_window_attention(ONES, ONES, ONES, 1, 0, global_v=ONES),
            "global_v: expected both global_k and global_v or neither",
        ),
        (
            lambda: SlidingWindow(1)(ONES, ONES, ONES, bias=torch.ones(3, 3, requires_grad=True)),
            "bias: expected one without gradient, got requires_grad=True",
        ),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("sizes", [(-1, 1), (1, -1), (1.5, 1), (1, 1, 0)])
def test_a_window_is_whole_numbers(sizes):
    with pytest.raises(ValueError, match="^(before|after|dilation): expected an integer"):
        sliding_window_attention(*torch.randn(3, 1, 1, 4, 2), *sizes)
