"""The lightning indexer against its formula, pair by pair, and how its choice is trained and judged."""

import math

import pytest
import torch
from torch.nn import functional

from attn_book.indexer import LightningIndexer, imitation_loss, recall


def made(seed=0):
    torch.manual_seed(seed)
    return LightningIndexer(12, num_heads=3, head_dim=8).double(), torch.randn(2, 7, 12, dtype=torch.float64)


def test_scores_are_the_formula_pair_by_pair():
    indexer, x = made()
    scores = indexer(x)
    places = torch.arange(7)
    k = indexer.positions.rotate(indexer.key(x)[:, None], places)[:, 0]
    for b in range(2):
        for t in range(7):
            q = indexer.query(x[b, t]).view(3, 1, 8)
            q = indexer.positions.rotate(q[None], places[t : t + 1])[0, :, 0]
            for s in range(7):
                wanted = sum(indexer.weight(x[b, t])[j] * torch.relu(q[j] @ k[b, s]) for j in range(3))
                torch.testing.assert_close(scores[b, t, s], wanted if s <= t else torch.tensor(-math.inf).double())


def test_gradients_are_those_of_finite_differences():
    indexer, x = made()
    x.requires_grad_()
    weights = torch.rand(2, 7, 7, dtype=torch.float64).tril().add(torch.eye(7))
    weights = weights / weights.sum(-1, keepdim=True)
    assert torch.autograd.gradcheck(lambda x: imitation_loss(indexer(x), weights), (x,))
    imitation_loss(indexer(x), weights).backward()
    assert all(parameter.grad.isfinite().all() and parameter.grad.any() for parameter in indexer.parameters())


def test_the_loss_is_zero_for_the_weights_themselves_and_else_the_divergence():
    torch.manual_seed(0)
    logits = torch.randn(2, 7, 7).masked_fill(torch.ones(7, 7).triu(1).bool(), -math.inf)
    weights = logits.softmax(-1)
    assert imitation_loss(logits, weights).abs() < 1e-6
    other = torch.where(logits.isfinite(), logits.flip(0), logits)
    rows = [
        functional.kl_div(other[b, t, : t + 1].log_softmax(-1), weights[b, t, : t + 1], reduction="sum")
        for b in range(2)
        for t in range(7)
    ]
    torch.testing.assert_close(imitation_loss(other, weights), torch.stack(rows).mean())


def test_recall_counts_the_true_keys():
    weights = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
    found, held = recall(torch.tensor([[9.0, 1.0, 5.0, 2.0]]), weights, 2)
    assert found.item() == 0.5 and held.item() == pytest.approx(0.65)
    assert recall(weights, weights, 3)[0].item() == 1


def test_it_learns_to_find_what_a_layer_attends_to():
    torch.manual_seed(0)
    x, query, key = torch.randn(4, 40, 12), torch.randn(12, 4), torch.randn(12, 4)
    logits = (x @ query) @ (x @ key).mT
    weights = logits.masked_fill(torch.ones(40, 40).triu(1).bool(), -math.inf).softmax(-1)
    indexer = LightningIndexer(12)
    before = recall(indexer(x), weights, 4)[0][:, 20:].mean()
    optimiser = torch.optim.Adam(indexer.parameters(), lr=5e-3)
    for _ in range(150):
        loss = imitation_loss(indexer(x), weights)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert recall(indexer(x), weights, 4)[0][:, 20:].mean() > before + 0.2


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("head_dim", lambda: LightningIndexer(8, head_dim=6)),
        ("num_heads", lambda: LightningIndexer(8, num_heads=0)),
        ("x", lambda: LightningIndexer(8)(torch.zeros(3, 8))),
        ("count", lambda: recall(torch.zeros(3, 4), torch.zeros(3, 4), 5)),
    ],
)
def test_bad_input_is_named(name, act):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        act()
