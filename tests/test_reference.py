import torch
from hypothesis import given

from tests import reference
from tests.properties.draws import calls, examples


@examples(80)
@given(calls())
def test_whole_tensors_give_what_the_loops_give(call):
    wanted = reference.by_loops(*call.tensors, **call.options)
    for one, other in zip(reference.attention(*call.tensors, **call.options), wanted, strict=True):
        assert one.shape == other.shape and (one - other).abs().sum() < 1e-10


def test_a_value_that_nobody_sees_may_be_nan():
    q, k, v = torch.randn(1, 1, 2, 3), torch.randn(1, 1, 2, 3), torch.tensor([[[[1.0], [torch.nan]]]])
    out, _ = reference.attention(q, k, v, mask=torch.tensor([True, False]))
    assert torch.equal(out, torch.ones(1, 1, 2, 1, dtype=torch.float64))
