import pytest
import torch

from attn_core.mechanisms.linformer import Linformer, shorten
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
