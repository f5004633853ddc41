"""The Triton kernels on drawn calls, in Triton's interpreter, which wants a process of its own."""

import pytest
import torch
from hypothesis import given

from attn_core import attention_with_weights
from attn_core.contract import contract
from tests import reference
from tests.interpreter import INTERPRETED, run_interpreted
from tests.properties.draws import calls, examples

pytest.importorskip("triton", reason="the package triton is not installed (it is made for Linux)")

from attn_core.mechanisms.flash_triton import flash_attention_triton  # noqa: E402


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's process")
def test_kernels_in_the_interpreter():
    run_interpreted(__file__)


@examples(10)
@given(calls(spreads=(0.1, 1.0)))
def check_against_the_reference(call):
    """Any layout, mask and bias; the gradients those of the explicit path in float64, and inputs left alone."""
    inputs = [x.detach().requires_grad_() for x in call.tensors]
    kept = [x.detach().clone() for x in inputs]
    out = flash_attention_triton(contract(*inputs, **call.options))
    expected, _ = reference.attention(*call.tensors, **call.options)
    assert (out - expected).abs().le(2 * reference.tolerance(torch.float32)).all()
    plain = [x.detach().double().requires_grad_() for x in call.tensors]
    toward = torch.randn(out.shape, generator=torch.Generator().manual_seed(0))
    found = torch.autograd.grad(out, inputs, toward)
    wanted = torch.autograd.grad(attention_with_weights(*plain, **call.options)[0], plain, toward.double())
    for one, other in zip(found, wanted, strict=True):
        assert (one - other).abs().le(20 * reference.tolerance(torch.float32)).all()
    assert all(torch.equal(x.detach(), y) for x, y in zip(inputs, kept, strict=True))


if INTERPRETED:
    test_it_equals_the_reference_forward_and_backward = check_against_the_reference
