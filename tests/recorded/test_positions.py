"""The recorded run of positions: T5's buckets, and a tiny run of each kind."""

import pytest
import torch

from recorded import positions


def test_buckets_are_single_when_near_shared_when_far_and_end_with_the_training_length():
    module = positions.Buckets()
    with torch.no_grad():
        module.table.copy_(torch.arange(16.0)[:, None].expand(-1, positions.HEADS))
    found = module.bias(torch.tensor([200]), 200 - torch.tensor([0, 1, 7, 8, 31, 32, 200, -3]))[0, 0]
    assert found.tolist() == [0, 1, 7, 8, 15, 15, 15, 0]


@pytest.mark.parametrize("kind", positions.KINDS)
def test_a_model_learns_and_is_tested_at_every_length(kind):
    torch.manual_seed(0)
    model = positions.PlacedModel(positions.LETTERS, kind)
    before = positions.validate(model, "copying", torch.empty(0), positions.TRAINED)
    positions.train(model, "copying", torch.empty(0), seed=0, rate=1e-2, steps=3)
    assert positions.validate(model, "copying", torch.empty(0), positions.TRAINED) < before
    found = positions.test_copying(model)
    assert {str(length) for length in positions.TESTED} < set(found)
    assert all(0 <= found[str(length)] <= 1 for length in positions.TESTED)
