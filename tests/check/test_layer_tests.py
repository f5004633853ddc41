"""The ten tests on layers that are right, ours and PyTorch's; and on mistakes that the zoo has not."""

import pytest
import torch

from attn_book.check.broken_layers import StepByStep
from attn_book.check.layer_tests import TESTS, shapes_are_right, symptoms
from attn_core import MultiHeadAttention


def grouped(model_dim, num_heads):
    """Ours with rotary scores or fewer key-value heads would fail by design; without biases it must not."""
    return MultiHeadAttention(model_dim, num_heads, bias=False)


@pytest.mark.parametrize("make", [StepByStep, MultiHeadAttention, grouped])
@pytest.mark.parametrize("test", [shapes_are_right, *TESTS])
def test_layers_that_are_right_pass(test, make):
    state = torch.random.get_rng_state()
    test(make)
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's random state is left alone"


class Silent(StepByStep):
    def merge(self, out):
        return 0 * super().merge(out)


class OnlyThePast(StepByStep):
    def allow(self, mask, causal, shape, device):
        allowed = super().allow(mask, False, shape, device)
        return allowed.tril(-1) if causal else allowed


class OneHead(StepByStep):
    def __init__(self, model_dim, num_heads):
        super().__init__(model_dim, 1)


class Narrow(StepByStep):
    def merge(self, out):
        return super().merge(out)[:, :-1]


class Crashing(StepByStep):
    def merge(self, out):
        raise RuntimeError("no memory")


@pytest.mark.parametrize(
    ("kind", "test", "message"),
    [
        (Silent, "one_batch_is_learned", "after 80 steps on one batch the loss is 2.08, not near 0"),
        (OnlyThePast, "causal_sees_the_past_and_no_more", "output 0 in training mode depends only on inputs []"),
        (OneHead, "heads_have_their_size", "weighted alike: there are fewer heads than requested"),
        (Narrow, "shapes_are_right", "(3, 5, 16) went in, (3, 4, 16) came out"),
        (Crashing, "shapes_are_right", "RuntimeError: no memory"),
    ],
)
def test_other_mistakes_are_caught_and_described(kind, test, message):
    assert message in (symptoms(kind)[test] or "")
