import math

import pytest
import torch
from torch import nn

from attn_book.context import (
    AttentionPooling,
    DynamicContext,
    GlobalContext,
    HierarchicalContext,
    global_context,
)
from attn_core import masks
from tests.context import reference

# Row 0: three sentences; row 1: its second is empty; row 2: one word; row 3: none. Padding is numbered wildly.
NUMBERS = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 2, 2, 2, -7, 99], [0, 0, 1, 2, 5, 5], [3, 0, 0, 1, 2, 3]])
LENGTHS = torch.tensor([6, 4, 1, 0])
WORDS = masks.length_mask(LENGTHS, 6)
FORMS = [HierarchicalContext, DynamicContext]


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make(form, *args, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = form(*args)
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.5)
    return module


def spoilt(x):
    """``x`` with NaN and infinity at its padding."""
    x = x.clone()
    x[~WORDS] = math.nan
    x[1, 5] = math.inf
    return x


def test_the_global_context_is_the_mean_of_the_words():
    x = draw(4, 6, 3)
    found = global_context(spoilt(x), WORDS)
    assert found.shape == (4, 1, 3)
    for row, length in enumerate(LENGTHS.tolist()):
        wanted = sum((word.double() for word in x[row, :length]), torch.zeros(3, dtype=torch.float64)) / max(length, 1)
        torch.testing.assert_close(found[row, 0].double(), wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(global_context(x), x.mean(1, keepdim=True))
    assert torch.equal(GlobalContext(3)(spoilt(x), NUMBERS, WORDS), found)
    assert torch.equal(global_context(x[:, :0]), torch.zeros(4, 1, 3))


def test_pooling_equals_the_loops_in_overlapping_and_empty_groups():
    pooling, x = make(AttentionPooling, 4), draw(2, 5, 4)
    members = torch.tensor([[[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]], [[1, 1, 1, 1, 1], [0] * 5, [0] * 5]])
    found = pooling(x, members.bool())
    assert found.shape == (2, 3, 4)
    for row in range(2):
        for group in range(3):
            own = [x[row, t].double() for t in range(5) if members[row, group, t]]
            wanted = reference.pool(pooling, own) if own else torch.zeros(4, dtype=torch.float64)
            torch.testing.assert_close(found[row, group].double(), wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("form", "by_loops"), list(zip(FORMS, (reference.hierarchical, reference.dynamic), strict=True))
)
def test_forms_equal_the_loops_whatever_the_padding_holds(form, by_loops):
    module, x = make(form, 4), draw(4, 6, 4)
    found = module(spoilt(x), NUMBERS, WORDS)
    assert found.shape == (4, 6, module.context_dim)
    for row, length in enumerate(LENGTHS.tolist()):
        numbers = NUMBERS[row, :length].tolist()
        wanted = by_loops(module, [word.double() for word in x[row, :length]], numbers) if length else []
        for place in range(6):
            own = wanted[place] if place < length else torch.zeros(module.context_dim, dtype=torch.float64)
            torch.testing.assert_close(found[row, place].double(), own, atol=2e-6, rtol=0)


@pytest.mark.parametrize("form", [GlobalContext, *FORMS])
def test_gradients_are_the_numerical_ones_and_none_reaches_padding(form):
    module = make(form, 3).double()
    x = draw(4, 6, 3, dtype=torch.float64).requires_grad_()
    own = tuple(module.parameters())

    def call(x, *own):
        named = dict(zip((name for name, _ in module.named_parameters()), own, strict=True))
        return torch.func.functional_call(module, named, (x, NUMBERS, WORDS))

    assert torch.autograd.gradcheck(call, (x, *own))
    bad = spoilt(x.detach()).requires_grad_()
    gradients = torch.autograd.grad(module(bad, NUMBERS, WORDS).square().sum(), [bad, *own])
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert not gradients[0][~WORDS].any() and gradients[0][WORDS].any(-1).all()
