"""Sinks: what they take, that both paths agree, and what they learn; values: ``tests/properties``."""

import math

import pytest
import torch

from attn_core import SinkAttention, attention


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_sinks(*values):
    made = SinkAttention(len(values)).double()
    with torch.no_grad():
        made.sinks.copy_(torch.tensor(values))
    return made


def test_a_sink_far_below_all_scores_changes_nothing_and_one_far_above_leaves_nothing():
    q, k, v = (draw(1, 2, 5, 4, seed=i) for i in range(3))
    found = with_sinks(-100.0, 100.0)(q, k, v)
    torch.testing.assert_close(found[:, :1], attention(q, k, v)[:, :1])
    assert found[:, 1:].abs().max() < 1e-30


def test_the_weights_are_those_of_a_softmax_with_one_more_score():
    q, k, v = (draw(1, 1, 3, 4, seed=i) for i in range(3))
    _, weights = with_sinks(0.7).with_weights(q, k, v)
    raised = (q @ k.mT / 2).exp()
    torch.testing.assert_close(weights, raised / (raised.sum(-1, keepdim=True) + math.exp(0.7)))


def test_another_number_of_heads_is_refused():
    with pytest.raises(ValueError, match="q: expected 3 heads, as there are sinks, got torch.float64"):
        SinkAttention(3)(*(draw(1, 2, 5, 4) for _ in range(3)))
    with pytest.raises(ValueError, match="num_heads: expected an integer of at least 1, got 0"):
        SinkAttention(0)
