"""The kernels of block selection in Triton's interpreter; on a CUDA device, ``tests/properties/test_gpu.py`` runs them.

As in ``test_flash_triton.py``, one test runs those for the interpreter in a process of its own.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from attn_core import BlockSelection
from attn_core.contract import contract
from attn_core.mechanisms import block_selection
from tests import reference
from tests.interpreter import INTERPRETED, interpreted, run_interpreted

pytest.importorskip("triton", reason="the package triton is not installed (it is made for Linux)")

from attn_core.mechanisms import block_selection_triton  # noqa: E402


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's process")
def test_kernels_in_the_interpreter():
    run_interpreted(__file__)


@pytest.fixture
def path(monkeypatch):
    """``path(True)``: from here on calls go to the kernels, wherever their tensors are; ``path(False)``: none does."""
    return lambda kernels: monkeypatch.setattr(block_selection, "_has_kernel", lambda call: kernels)


CASES = {  # B, H, G, T, S, D, Dv; block size, selected, local
    "plain": ((1, 2, 2, 12, 12, 16, 16), (2, 2, 2)),
    "grouped, odd sizes": ((2, 6, 2, 6, 33, 20, 12), (5, 2, 1)),
    "more heads than a program has": ((1, 36, 2, 3, 12, 8, 8), (4, 1, 1)),
    "blocks of several tiles": ((1, 2, 1, 4, 85, 16, 24), (40, 1, 1)),
    "more queries than keys": ((2, 2, 1, 7, 5, 16, 16), (2, 1, 2)),
    "a decoding step": ((2, 4, 2, 1, 33, 16, 16), (8, 2, 2)),
    "near alone": ((1, 2, 1, 8, 13, 16, 16), (3, 0, 3)),
}


def drawn(name, dtype=torch.float32):
    (batch, heads, groups, queries, keys, size, value_size), settings = CASES[name]
    torch.manual_seed(0)
    shapes = (batch, heads, queries, size), (batch, groups, keys, size), (batch, groups, keys, value_size)
    block_size, selected, local = settings
    mask = torch.rand(batch, 1, 1, keys) > 0.4
    mask[..., block_size : 2 * block_size] = False  # a whole block
    mask[1:] = False  # a whole row of the batch
    tensors = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
    return BlockSelection(block_size, selected=selected, local=local), tensors, mask


def both_ways(mechanism, tensors, **options):
    out = mechanism(*tensors, **options)
    toward = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out.detach(), *torch.autograd.grad(out, tensors, toward)]


@interpreted
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_they_give_what_the_other_path_gives_forward_and_backward(name, masked, causal, path):
    mechanism, tensors, mask = drawn(name)
    options = {"causal": causal, "mask": mask if masked else None, "scale": -0.3 if name == "plain" else None}
    path(True)
    found = both_ways(mechanism, tensors, **options)
    path(False)
    wanted = both_ways(mechanism, [x.detach().double().requires_grad_() for x in tensors], **options)
    for factor, one, other in zip((1, 10, 10, 10), found, wanted, strict=True):
        assert one.dtype == torch.float32 and one.shape == other.shape
        assert (one - other).abs().max() < factor * reference.tolerance(torch.float32)


@interpreted
def test_float16_keeps_its_dtype_and_its_accuracy(path):
    # bfloat16 is left to the GPU: the interpreter multiplies its bits as integers.
    mechanism, tensors, mask = drawn("grouped, odd sizes", torch.float16)
    path(True)
    found = both_ways(mechanism, tensors, causal=True, mask=mask)
    path(False)
    wanted = both_ways(mechanism, [x.detach().double().requires_grad_() for x in tensors], causal=True, mask=mask)
    for factor, one, other in zip((1, 3, 3, 3), found, wanted, strict=True):
        assert one.dtype == torch.float16
        assert (one - other).abs().max() < factor * reference.tolerance(torch.float16)


@interpreted
def test_an_empty_row_is_silent_whatever_the_values_are_and_takes_no_gradient(path):
    mechanism, (q, k, v), mask = drawn("grouped, odd sizes")
    path(True)
    out = mechanism(q, k, torch.cat((v[:1], torch.full_like(v[1:], torch.nan))), mask=mask)
    assert torch.equal(out[1], torch.zeros_like(out[1])) and out[0].isfinite().all()
    gradients = torch.autograd.grad(mechanism(q, k, v, mask=mask).square().sum(), (q, k, v))
    for one in gradients:
        assert torch.equal(one[1], torch.zeros_like(one[1])) and one[0].isfinite().all() and one[0].any()
    for one in gradients[1:]:
        assert not one.masked_select(~mask[:, :, 0, :, None]).any()


@interpreted
def test_tensors_lie_anywhere_and_are_never_changed(path):
    mechanism, tensors, mask = drawn("grouped, odd sizes")
    path(True)
    wanted = both_ways(mechanism, tensors, mask=mask[:1, 0], causal=True)
    laid = [x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in tensors[:2]]
    laid.append(tensors[2].detach().mT.contiguous().mT)
    laid, kept = [x.requires_grad_() for x in laid], [x.detach().clone() for x in laid]
    found = both_ways(mechanism, laid, mask=mask[0, 0, 0], causal=True)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert all(torch.equal(x.detach(), y) for x, y in zip(laid, kept, strict=True))
    out = mechanism(*laid)
    wanted = torch.autograd.grad(out, laid, torch.ones_like(out), retain_graph=True)
    found = torch.autograd.grad(out.sum(), laid)  # the sum's own gradient is one number, expanded
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@interpreted
@pytest.mark.filterwarnings("ignore")  # of PyTorch's tracer, about its own ways
def test_it_compiles_whole(path):
    mechanism, tensors, mask = drawn("a decoding step")
    path(True)
    compiled = torch.compile(mechanism, fullgraph=True, backend="aot_eager")
    found, wanted = (both_ways(x, tensors, mask=mask, causal=True) for x in (compiled, mechanism))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@interpreted
@pytest.mark.parametrize("strided", [False, True])
def test_there_is_no_second_derivative(path, strided):
    mechanism, (q, k, v), _ = drawn("plain")
    path(True)
    if strided:  # what the kernels read is then a copy
        q, k, v = (x.detach().mT.contiguous().mT.requires_grad_() for x in (q, k, v))
    first = torch.autograd.grad(mechanism(q, k, v).sum(), k, create_graph=True)  # of a constant gradient
    with pytest.raises(RuntimeError, match="^BlockSelection: expected no second derivative"):
        torch.autograd.grad(first[0].sum(), k)


@interpreted
def test_the_operator_keeps_to_what_it_says_of_itself():
    mechanism, (q, k, v), mask = drawn("a decoding step")
    blocks, last = mechanism.choose(contract(q, k, v, mask=mask))
    q, k, v = (x.detach() for x in (q.transpose(1, 2).contiguous(), k, v))
    out, logsumexp = torch.empty_like(q), torch.empty(q.shape[:3])
    torch.library.opcheck(
        block_selection_triton._launch, ([q], [out, logsumexp], [k, v, blocks, last], mask.contiguous(), 8, 0.3)
    )


@pytest.mark.parametrize(
    ("dtype", "sizes", "expected"),
    [
        (torch.float16, (64, 64), True),
        (torch.float32, (256, 24), True),
        (torch.float64, (64, 64), False),
        (torch.float16, (257, 64), False),
        (torch.float16, (64, 300), False),
        (torch.float16, (64, 0), False),
    ],
)
def test_which_calls_go_to_the_kernels(dtype, sizes, expected, monkeypatch):
    for device, wanted in (("cpu", False), ("cuda", expected)):
        with FakeTensorMode():
            q, k = (torch.empty(2, n, 5, sizes[0], dtype=dtype, device=device) for n in (4, 2))
            call = contract(q, k, torch.empty(2, 2, 5, sizes[1], dtype=dtype, device=device))
        assert block_selection._has_kernel(call) is wanted
    monkeypatch.setattr(block_selection, "TRITON", False)
    assert not block_selection._has_kernel(call)
