"""The Triton kernels: on a CPU in Triton's interpreter, at tiny sizes, and on a CUDA device at real ones.

The interpreter has to be chosen before anything imports Triton, and for the whole process: so one test, which runs
everywhere, runs the interpreted ones of this file in a process of their own.
"""

import itertools
import math

import pytest
import torch
from hypothesis import given
from torch.nn import functional

from attn_core import attention_with_weights, masks
from attn_core.contract import contract
from tests import reference
from tests.interpreter import INTERPRETED, interpreted, run_interpreted
from tests.properties.draws import calls, examples

pytest.importorskip("triton", reason="the package triton is not installed (it is made for Linux)")

from attn_core.mechanisms import flash_triton  # noqa: E402
from attn_core.mechanisms.flash_triton import _launch  # noqa: E402


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's process")
def test_kernels_in_the_interpreter():
    run_interpreted(__file__)


def flash_attention_triton(q, k, v, **options):
    return flash_triton.flash_attention_triton(contract(q, k, v, **options))


SHAPES = {  # B, H, G, T, S, D, Dv
    "plain": (1, 1, 1, 32, 32, 16, 16),
    "odd": (2, 1, 1, 18, 37, 20, 20),
    "grouped": (1, 4, 2, 17, 21, 16, 16),
    "multi-query": (1, 3, 1, 9, 16, 8, 8),
    "other values": (1, 1, 1, 18, 33, 24, 40),
    "one key": (1, 1, 1, 5, 1, 16, 16),
    "one query": (1, 1, 1, 1, 35, 16, 16),
    "small": (1, 2, 1, 9, 18, 16, 16),
    "one key short of a whole tile": (1, 1, 1, 18, 32, 16, 16),  # the first query sees 15 keys, and tiles hold 16
    "many more queries than keys": (1, 1, 1, 70, 19, 16, 16),
    "many more keys than queries": (1, 1, 1, 18, 70, 16, 16),
}


def inputs(name, dtype=torch.float32):
    batch, heads, groups, queries, keys, size, value_size = SHAPES[name]
    torch.manual_seed(7)
    q = torch.randn(batch, heads, queries, size)
    k, v = torch.randn(batch, groups, keys, size), torch.randn(batch, groups, keys, value_size)
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
        "a mask per head, causal": {"mask": mask[0, :, :1], "causal": True},
        "padding": {"mask": masks.padding(torch.tensor([max(1, keys - 3), 0][:batch]), keys)},
        "bias": {"bias": bias},
        "bias with -inf rows": {"bias": bias[:, :, :1].masked_fill(~mask[0, :, :, :1], -math.inf)},
        "all, small scale": {"mask": mask, "bias": bias.half(), "causal": True, "scale": 0.1},
        "negative scale": {"mask": mask[:, :, :, :1], "scale": -0.5},
    }[kind]


LIMITED = "mask|a mask per head, causal|padding|bias|bias with -inf rows|all, small scale|negative scale".split("|")
CASES = [*itertools.product(SHAPES, ("nothing", "causal")), *itertools.product(("odd", "grouped"), LIMITED)]


# bfloat16 is left to the GPU: the interpreter multiplies its bits as integers.
@interpreted
@pytest.mark.parametrize(
    ("name", "kind", "dtype"), [(*case, torch.float32) for case in CASES] + [("grouped", "causal", torch.float16)]
)
def test_it_equals_the_reference_forward_and_backward(name, kind, dtype):
    ours, chosen = inputs(name, dtype), options(name, kind)
    plain = [x.detach().double().requires_grad_() for x in ours]
    out = flash_attention_triton(*ours, **chosen)
    expected, _ = reference.attention(*ours, **chosen)
    assert out.dtype == dtype and out.shape == expected.shape
    assert (out.double() - expected).abs().max() < reference.tolerance(dtype)
    direction = torch.randn_like(out)
    out.backward(direction)
    attention_with_weights(*plain, **chosen)[0].backward(direction.double())
    for mine, theirs in zip(ours, plain, strict=True):
        assert mine.grad.dtype == dtype
        assert (mine.grad - theirs.grad).abs().max() < (10 if dtype == torch.float32 else 3) * reference.tolerance(
            dtype
        )


@interpreted
@examples(10)
@given(calls(spreads=(0.1, 1.0)))
def test_drawn_calls_equal_the_reference_and_leave_their_inputs_alone(call):
    """Any layout, mask and bias; the gradients those of the explicit path in float64."""
    tensors = [x.detach().requires_grad_() for x in call.tensors]
    kept = [x.detach().clone() for x in tensors]
    out = flash_attention_triton(*tensors, **call.options)
    assert out.transpose(1, 2).is_contiguous() or call.tensors[1].numel() == 0  # without keys, no kernel runs
    expected, _ = reference.attention(*call.tensors, **call.options)
    assert (out - expected).abs().le(2 * reference.tolerance(torch.float32)).all()
    plain = [x.detach().double().requires_grad_() for x in call.tensors]
    toward = torch.randn(out.shape, generator=torch.Generator().manual_seed(0))
    found = torch.autograd.grad(out, tensors, toward)
    wanted = torch.autograd.grad(attention_with_weights(*plain, **call.options)[0], plain, toward.double())
    for one, other in zip(found, wanted, strict=True):
        assert (one - other).abs().le(20 * reference.tolerance(torch.float32)).all()
    assert all(torch.equal(x.detach(), y) for x, y in zip(tensors, kept, strict=True))


@interpreted
def test_an_empty_row_is_silent_whatever_the_values_are_and_takes_no_gradient():
    q, k, v = inputs("odd")
    with torch.no_grad():
        v[1] = torch.nan
    mask = masks.padding(torch.tensor([30, 0]), 37)
    out = flash_attention_triton(q, k, v, mask=mask)
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    out[0].square().sum().backward()
    assert torch.isfinite(q.grad[0]).all() and q.grad[0].abs().max() > 0
    q, k, v = inputs("odd")
    flash_attention_triton(q, k, v, mask=mask).sum().backward()
    assert all(torch.equal(x.grad[1], torch.zeros_like(x.grad[1])) for x in (q, k, v))
    assert torch.equal(k.grad[0, :, 30:], torch.zeros_like(k.grad[0, :, 30:]))


# The weights of keys beyond the last overflow in the backward pass, in rows that are never written.
@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_strongly_negative_scores_do_not_overflow():
    q, k, v = (x.detach() for x in inputs("odd"))
    q, k = q.abs() * 20, -k.abs() * 20
    tensors = [x.requires_grad_() for x in (q, k, v)]
    out = flash_attention_triton(q, k, v)
    assert (out - reference.attention(q, k, v)[0]).abs().max() < reference.tolerance(torch.float32, scale=20)
    assert all(torch.isfinite(x).all() for x in torch.autograd.grad(out.square().sum(), tensors))


@interpreted
def test_a_gradient_may_be_one_number_expanded():
    ours, plain = inputs("small"), inputs("small")
    flash_attention_triton(*ours, causal=True).sum().backward()
    attention_with_weights(*plain, causal=True)[0].sum().backward()
    for mine, theirs in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)


@interpreted
@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0), (0, 0)])
def test_length_zero(queries, keys):
    q = torch.randn(2, 2, queries, 4, requires_grad=True)
    k, v = torch.randn(2, 2, keys, 4), torch.randn(2, 2, keys, 6)
    out = flash_attention_triton(q, k, v, causal=True)
    assert torch.equal(out, torch.zeros(2, 2, queries, 6))
    out.sum().backward()
    assert torch.isfinite(q.grad).all()


@interpreted
def test_the_operator_keeps_to_what_it_says_of_itself():
    q, k, v = (x.detach() for x in inputs("small"))
    settings = torch.rand(9, 18) > 0.3, torch.randn(2, 1, 18), True, 0.3
    out, logsumexp = torch.empty_like(q), torch.empty(q.shape[:3])
    torch.library.opcheck(_launch, ([q, k, v], [out, logsumexp], *settings))
    _launch([q, k, v], [out, logsumexp], *settings)
    written = [torch.empty_like(x) for x in (q, k, v, logsumexp)]
    torch.library.opcheck(_launch, ([q, k, v, torch.ones_like(out), out, logsumexp], written, *settings))


@interpreted
@pytest.mark.filterwarnings("ignore")  # of PyTorch's tracer, about its own ways
def test_it_compiles_whole():
    ours, plain = inputs("small"), inputs("small")
    compiled = torch.compile(flash_attention_triton, fullgraph=True, backend="aot_eager")
    out, expected = (function(*x, causal=True) for function, x in ((compiled, ours), (flash_attention_triton, plain)))
    assert torch.equal(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert all(torch.equal(mine.grad, theirs.grad) for mine, theirs in zip(ours, plain, strict=True))


@interpreted
def test_there_is_no_second_derivative():
    q, k, v = inputs("one key")
    first = torch.autograd.grad(flash_attention_triton(q, k, v).sum(), q, create_graph=True)  # of a constant gradient
    with pytest.raises(RuntimeError, match="^flash_attention: expected no second derivative"):
        torch.autograd.grad(first[0].sum(), k)


@pytest.mark.parametrize(
    ("name", "x"), [("q", torch.zeros(1, 1, 1, 4).double()), ("q", torch.zeros(1, 1, 1, 257))], ids=["dtype", "size"]
)
def test_what_there_is_no_kernel_for_is_named(name, x):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        flash_attention_triton(x, x, x)


# On a CUDA device. flash-attention's own standard: against float32, an error at most twice that of the plain way of
# computing in the same dtype.

cuda = pytest.mark.skipif(not torch.cuda.is_available() or INTERPRETED, reason="torch finds no CUDA device")


def naive(q, k, v, *, mask=None, causal=False):
    """Attention with every step in the dtype of the inputs."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[3])
    visible = torch.ones((), dtype=torch.bool, device=q.device) if mask is None else mask
    if causal:
        visible = visible & masks.causal(q.shape[2], k.shape[2], device=q.device)
    empty = ~visible.expand(scores.shape).any(-1, keepdim=True)
    weights = functional.softmax(scores.masked_fill(~(visible | empty), -math.inf), dim=-1)
    return weights.masked_fill(empty, 0.0) @ v


REAL = {  # B, H, G, T, S, D, Dv
    "head 64": (2, 8, 8, 1024, 1024, 64, 64),
    "head 128": (1, 8, 8, 2048, 2048, 128, 128),
    "grouped": (1, 16, 4, 1024, 1024, 128, 128),
    "odd lengths": (1, 4, 2, 1021, 1531, 64, 64),
    "more queries than keys": (1, 4, 4, 1300, 777, 128, 128),
    "long": (1, 2, 2, 4096, 4096, 64, 64),
    "head 256": (1, 2, 1, 1000, 1000, 256, 256),
    "head 80, other values": (1, 4, 4, 500, 600, 80, 48),
}


def both_ways(function, tensors, direction, **chosen):
    tensors = [x.detach().requires_grad_() for x in tensors]
    out = function(*tensors, **chosen)
    return [out.detach(), *torch.autograd.grad(out, tensors, direction.to(out.dtype))]


@pytest.mark.gpu
@cuda
@pytest.mark.parametrize("kind", ["nothing", "causal", "mask", "padding, causal"])
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_errs_at_most_twice_as_much_as_the_plain_way(dtype, name, kind):
    batch, heads, groups, queries, keys, size, value_size = REAL[name]
    torch.manual_seed(0)
    shapes = (batch, heads, queries, size), (batch, groups, keys, size), (batch, groups, keys, value_size)
    tensors = [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]
    direction = torch.randn(batch, heads, queries, value_size, device="cuda").to(dtype)
    mask = torch.rand(heads, queries, keys, device="cuda") > 0.3
    mask[0, 5] = False
    chosen = {
        "nothing": {},
        "causal": {"causal": True},
        "mask": {"mask": mask},
        "padding, causal": {"mask": masks.padding(torch.tensor([keys - 100] * batch), keys).cuda(), "causal": True},
    }[kind]
    exact = both_ways(naive, [x.double() for x in tensors], direction, **chosen)
    plain = both_ways(naive, tensors, direction, **chosen)
    ours = both_ways(flash_attention_triton, tensors, direction, **chosen)
    for what, mine, theirs, truth in zip(("out", "dq", "dk", "dv"), ours, plain, exact, strict=True):
        assert torch.isfinite(mine).all(), what
        error, allowed = (mine - truth).abs().max(), 2 * (theirs - truth).abs().max()
        assert error <= allowed + 1e-5, f"{what}: {error:.2e}, allowed {allowed:.2e}"
    again = both_ways(flash_attention_triton, tensors, direction, **chosen)
    assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))


@pytest.mark.gpu
@cuda
def test_offsets_beyond_what_32_bits_hold():
    # The last row of the batch begins 2³¹ entries behind the first.
    wide = torch.empty(3, 1, 2**20, 1024, device="cuda", dtype=torch.bfloat16)
    q, k, v = (wide[:, :, :200, i : i + 64].normal_() for i in (0, 64, 128))
    toward = torch.ones_like(q)
    found = both_ways(flash_attention_triton, (q, k, v), toward)
    last = both_ways(flash_attention_triton, [x[2:].contiguous() for x in (q, k, v)], toward[2:])
    assert all(torch.equal(one[2:], other) for one, other in zip(found, last, strict=True))
