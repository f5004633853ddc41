import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attn_core import MultiHeadAttention, device
from attn_core.contract import contract
from attn_core.mechanisms import window
from attn_core.mechanisms.window import SlidingWindow, attend_in_window
from benchmarks.measure import fresh, peak_memory
from tests import reference


@pytest.fixture(params=[(2, ["cpu"]), (window.TILE, ["cpu"]), (2, []), (window.TILE, [])])
def tile(request, monkeypatch):
    """Small and large blocks; one by one as on a CPU, and all at once."""
    size, tiled = request.param
    monkeypatch.setattr(window, "TILE", size)
    monkeypatch.setattr(device, "TILED", tiled)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "dilation"), [(500, 1), (131, 1), (401, 3), (63, 2)])
def test_long_and_odd_lengths_forward_and_backward(length, dilation, causal, tile):
    q, toward, bias = torch.randn(2, 4, length, 16), torch.randn(2, 4, length, 16), torch.randn(4, length, length)
    k, v, mask = torch.randn(2, 2, length, 16), torch.randn(2, 2, length, 16), torch.rand(2, 1, 1, length) > 0.2
    ours, plain = [[x.clone().to(dtype).requires_grad_() for x in (q, k, v)] for dtype in (q.dtype, torch.float64)]
    mechanism = SlidingWindow(30, 20, dilation=dilation)
    out = mechanism(*ours, mask=mask, bias=bias, causal=causal)
    allowed = reference.window(length, length, 30, 20, dilation) & mask
    scores = plain[0] @ plain[1].repeat_interleave(2, 1).mT / 4 + bias
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


@pytest.mark.parametrize(("groups", "queries", "keys"), [(4, 9, 9), (2, 7, 7), (4, 11, 4)])
def test_global_keys_join_the_softmax_of_the_window(groups, queries, keys, tile):
    shapes = (2, 4, queries, 3), (2, groups, keys, 3), (2, groups, keys, 5)
    q, k, v = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    global_k, global_v = torch.randn_like(k[:, :, :3]), torch.randn_like(v[:, :, :3])
    shown = torch.rand(len(q), 3) > 0.5
    mask = torch.rand(len(q), 1, 1, k.shape[2]) > 0.5
    arguments = [x.detach().requires_grad_() for x in (q, k, v, global_k, global_v)]

    def ours(q, k, v, global_k, global_v):
        shared = {"global_k": global_k, "global_v": global_v, "global_mask": shown}
        return attend_in_window(contract(q, k, v, mask=mask), 2, 1, **shared)

    window_mask = (reference.window(q.shape[2], k.shape[2], 2, 1, 1) & mask).expand(*q.shape[:3], -1)
    both = torch.cat((shown[:, None, None].expand(*q.shape[:3], -1), window_mask), -1)
    expected, _ = reference.attention(q, torch.cat((global_k, k), 2), torch.cat((global_v, v), 2), mask=both)
    assert (ours(*arguments) - expected).abs().max() < 1e-12
    assert torch.autograd.gradcheck(ours, arguments, atol=1e-7, fast_mode=True)


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
