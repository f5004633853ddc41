"""The ten tests on layers that are right, ours and PyTorch's; and on mistakes that the zoo has not."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from attn_book.check import layer_tests
from attn_book.check.broken_layers import StepByStep
from attn_book.check.layer_tests import TESTS, shapes_are_right, symptoms
from attn_core import AdditiveAttention, MultiHeadAttention


class Torch(nn.Module):
    """PyTorch's multi-head attention, its weights in four linear layers, its masks turned round."""

    def __init__(self, model_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.out = (nn.Linear(model_dim, model_dim) for _ in range(4))

    def forward(self, queries, keys=None, *, mask=None, causal=False):
        keys = queries if keys is None else keys
        batch, size, source = len(queries), queries.shape[1], keys.shape[1]
        hidden = torch.zeros(batch, self.num_heads, size, source, dtype=torch.bool)
        if mask is not None:
            hidden = hidden | ~mask
        if causal:
            hidden = hidden | torch.ones(size, source, dtype=torch.bool).triu(1)
        parts = (self.query, self.key, self.value)
        out, _ = functional.multi_head_attention_forward(
            *(x.transpose(0, 1) for x in (queries, keys, keys)),
            queries.shape[2],
            self.num_heads,
            None,
            torch.cat([part.bias for part in parts]),
            None,
            None,
            False,
            0.0,
            self.out.weight,
            self.out.bias,
            need_weights=False,
            attn_mask=hidden.flatten(0, 1),
            use_separate_proj_weight=True,
            q_proj_weight=self.query.weight,
            k_proj_weight=self.key.weight,
            v_proj_weight=self.value.weight,
        )
        return out.transpose(0, 1)


def grouped(model_dim, num_heads):
    """Ours with rotary scores or fewer key-value heads would fail by design; without biases it must not."""
    return MultiHeadAttention(model_dim, num_heads, bias=False)


@pytest.mark.parametrize("make", [StepByStep, MultiHeadAttention, grouped, Torch])
@pytest.mark.parametrize("test", [shapes_are_right, *TESTS])
def test_layers_that_are_right_pass(test, make):
    state = torch.random.get_rng_state()
    test(make)
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's random state is left alone"


def test_there_are_ten_and_each_says_what_it_wants():
    assert len(TESTS) == len({test.__name__ for test in TESTS}) == 10
    assert all(test.__doc__ for test in TESTS)


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


def test_another_mechanism_fails_only_where_it_differs():
    """Additive scores, whose first weights here are random, match nothing; all else must hold."""

    def make(model_dim, num_heads):
        return MultiHeadAttention(model_dim, num_heads, mechanism=AdditiveAttention(model_dim // num_heads, 8))

    failed = {name for name, message in symptoms(make).items() if message}
    assert failed <= {"a_match_is_fetched"}
    assert layer_tests.CLOSE == 1e-5
