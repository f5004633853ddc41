import math

import pytest
import torch

from attn_core.mechanisms.online import OnlineSoftmax, exponential_


def tiles_of(scores, values, width):
    return list(zip(scores.split(width, -1), values.split(width, -2), strict=True))


def read(tiles, rows, value_dim, dtype=torch.float64):
    softmax = OnlineSoftmax(rows, value_dim, dtype=dtype)
    for scores, values in tiles:
        softmax.add(scores.clone(), values)
    return softmax


def whole(scores, values):
    """Softmax over all keys at once, in float64, in the words of PyTorch: NaN where nothing is seen becomes 0."""
    scores = scores.double()
    return torch.nan_to_num(scores.softmax(-1), nan=0.0) @ values.double(), scores.logsumexp(-1)


def close(softmax, scores, values, tolerance):
    out, logsumexp = whole(scores, values)
    assert (softmax.out() - out).abs().max() < tolerance
    torch.testing.assert_close(softmax.logsumexp().double(), logsumexp, atol=tolerance, rtol=tolerance)


def test_an_empty_row_is_silent_whatever_its_values_are():
    softmax = OnlineSoftmax((2,), 4)
    softmax.add(torch.full((2, 3), -math.inf), torch.full((3, 4), math.nan))
    assert torch.equal(softmax.out(), torch.zeros(2, 4))


def test_what_is_not_a_number_is_not_hidden():
    softmax = OnlineSoftmax((2,), 4)
    softmax.add(torch.zeros(2, 3), torch.full((3, 4), math.nan))
    assert softmax.out().isnan().all()


@pytest.mark.parametrize("shift", [1e4, -1e4, 1e30])
def test_huge_scores_do_not_overflow(shift):
    scores, values = torch.randn(3, 10) + shift, torch.randn(10, 4)
    close(read(tiles_of(scores, values, 3), (3,), 4, torch.float32), scores, values, 3e-6)


@pytest.mark.parametrize("rising", [True, False])
def test_scores_that_climb_or_fall_by_thousands(rising):
    scores = (1000 * torch.arange(10.0)).expand(3, 10)
    scores, values = scores if rising else scores.flip(-1), torch.randn(10, 4)
    softmax = read(tiles_of(scores, values, 2), (3,), 4, torch.float32)
    assert torch.equal(softmax.out(), values[9 if rising else 0].expand(3, 4))


def test_what_it_holds_does_not_grow_and_values_may_be_of_half_precision():
    softmax, values = OnlineSoftmax((2, 5), 3), torch.randn(64, 3).bfloat16()
    scores = torch.randn(2, 5, 64)
    for part, some in tiles_of(scores, values, 8):
        softmax.add(part.clone(), some)
        held = [x for x in vars(softmax).values() if isinstance(x, torch.Tensor)]
        assert sum(x.untyped_storage().nbytes() for x in held) == 4 * 2 * 5 * (1 + 1 + 3)
    close(softmax, scores, values, 3e-6)


def test_the_exponential_is_one_to_rounding_and_works_in_place():
    x = torch.cat([torch.linspace(-80, 20, 1001), torch.tensor([-math.inf, 0.0])])
    expected = x.double().exp()
    found = exponential_(x)
    assert found is x
    # A rounding of x itself changes its exponential by as much, relatively, as x is rounded absolutely.
    assert ((found - expected).abs() <= 2e-5 * expected).all()
    assert found[-2] == 0.0 and found[-1] == 1.0
