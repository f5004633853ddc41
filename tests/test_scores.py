import math

import pytest
import torch

from attn_core.scores import Additive, Dot, General, ScaledDot


def make(kind: str):
    torch.manual_seed(0)
    return {"dot": Dot, "scaled": ScaledDot, "general": lambda: General(4, 4), "additive": lambda: Additive(4, 4, 6)}[
        kind
    ]().double()


def by_loops(score, q, k):
    """Each score from its definition, one pair at a time."""
    if isinstance(score, General):
        weight = score.key_to_query.weight
        return torch.stack([torch.stack([a @ weight @ b for b in k]) for a in q])
    if isinstance(score, Additive):
        weight, bias = (score.query.weight, score.key.weight), score.energy.weight[0]
        return torch.stack([torch.stack([bias @ torch.tanh(weight[0] @ a + weight[1] @ b) for b in k]) for a in q])
    factor = 1 / math.sqrt(q.shape[-1]) if isinstance(score, ScaledDot) else 1.0
    return torch.stack([torch.stack([factor * (a * b).sum() for b in k]) for a in q])


@pytest.mark.parametrize("kind", ["dot", "scaled", "general", "additive"])
def test_equals_its_definition(kind):
    score = make(kind)
    q, k = torch.randn(3, 4).double(), torch.randn(5, 4).double()
    assert torch.allclose(score(q, k), by_loops(score, q, k), atol=1e-12)


@pytest.mark.parametrize("kind", ["dot", "scaled", "general", "additive"])
def test_leading_axes_strides_and_prepared_keys(kind):
    score = make(kind)
    q = torch.randn(2, 4, 3, 4).double().transpose(1, 2)
    k = torch.randn(2, 3, 4, 7).double().transpose(-2, -1)
    before = q.clone(), k.clone()
    scores = score.score(q, score.project_keys(k))
    assert scores.shape == (2, 3, 4, 7)
    assert torch.equal(scores, score(q, k))
    assert torch.allclose(scores[1, 2], by_loops(score, q[1, 2], k[1, 2]), atol=1e-12)
    assert torch.equal(q, before[0]) and torch.equal(k, before[1])


@pytest.mark.parametrize("kind", ["dot", "scaled", "general", "additive"])
@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0), (1, 1)])
def test_lengths_zero_and_one(kind, queries, keys):
    assert make(kind)(torch.randn(queries, 4).double(), torch.randn(keys, 4).double()).shape == (queries, keys)


@pytest.mark.parametrize("kind", ["dot", "scaled", "general", "additive"])
def test_gradients(kind):
    score = make(kind)
    q = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    k = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(score, (q, k))


def test_additive_and_general_take_different_sizes():
    q, k = torch.randn(3, 5), torch.randn(2, 8)
    assert General(5, 8)(q, k).shape == (3, 2)
    assert Additive(5, 8, 16)(q, k).shape == (3, 2)


def test_scaled_dot_in_half_precision_divides_before_it_multiplies():
    q = torch.full((1, 64), 40.0, dtype=torch.float16)
    assert ScaledDot()(q, q).item() == 64 * 1600 / 8


def test_additive_is_bounded_by_its_own_weights():
    score = Additive(4, 4, 6)
    bound = score.energy.weight.abs().sum()
    assert score(1e4 * torch.randn(9, 4), 1e4 * torch.randn(9, 4)).abs().max() <= bound * (1 + 1e-6)
