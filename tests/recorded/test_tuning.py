"""The recorded run of fine-tuning: its schedule, LoRA, and a tiny run of our model."""

import json
from pathlib import Path

import pytest
import torch

from attn_book.pretrain import ClassHead, Text, frozen_from
from recorded import transfer, tuning

PLAN = transfer.Plan(8_000, 200, 40, 1, 1, {30: 1})


@pytest.fixture(scope="module")
def world():
    return transfer.World(PLAN)


def test_lora_begins_as_the_frozen_model_and_trains_little(world):
    encoder = transfer.new_encoder(world, 0)
    texts = [Text(one.first, label=one.label) for one in world.tasks["sense"]["train"][:20]]
    model, about = tuning.tune(encoder, texts, world.vocab, (20, 1, 1e-3, True), 0)
    head = sum(p.numel() for p in ClassHead(64, 2).parameters())
    assert about["trained"] == 2 * 2 * tuning.RANK * (64 + 64) + head
    fresh = tuning.with_lora(frozen_from(encoder, 2), tuning.RANK)
    tokens, lengths = torch.randint(7, 100, (2, 5)), torch.tensor([5, 3])
    with torch.no_grad():
        assert torch.allclose(fresh.encoder(tokens, lengths), encoder(tokens, lengths), atol=1e-6)
        assert not torch.allclose(model.encoder(tokens, lengths), encoder(tokens, lengths), atol=1e-4)
    query = model.encoder.stack.layers[0].attention.query
    assert torch.equal(query.linear.weight, encoder.stack.layers[0].attention.query.weight)


def test_a_larger_rate_moves_the_matrices_further(world):
    texts, encoder = world.tasks["sense"]["train"], transfer.new_encoder(world, 0)
    models = [tuning.tune(encoder, texts, world.vocab, (30, 1, rate, False), 0)[0] for rate in (1e-5, 1e-3)]
    near, far = (tuning.moved(encoder, model.encoder) for model in models)
    assert 0 < 50 * near < far < 200 * near


def test_a_tiny_run_of_our_model(world):
    found = tuning.ours(world, Path(tuning.__file__).parent / "results", [(30, 1, 1e-3, False)], (0,))
    json.dumps(found, allow_nan=False)
    (one,) = found["tuned"]
    assert one["rate"] == "1e-03" and one["steps"] == 2
    assert 0.3 < one["hidden_words"] < found["before"]["accuracy"] + 0.05
