"""The recorded run of what SmolLM2 writes, with a tiny model in its place."""

import pytest
import torch

from attn_core.decode import generate
from attn_core.decode.pick import argmax
from recorded import likeliest
from recorded.scaling_law import build


@pytest.fixture(scope="module")
def model():
    return build(16, 20, 3).eval()


def test_a_search_goes_on_after_the_prompts(model):
    prompts = torch.randint(4, 20, (3, 6), generator=torch.Generator().manual_seed(1))
    lengths = torch.full((3,), 6)
    without_end = lambda logits: argmax(logits.index_fill(-1, torch.tensor([2]), -torch.inf))  # noqa: E731
    expected = [one.ids for one in generate(model, prompts.tolist(), max_new_tokens=5, pick=without_end)]
    found = likeliest.sample(likeliest.Continuing(model), prompts, lengths, max_length=5, pick=argmax)
    assert [one.ids for one in found] == expected


def test_the_losses_are_those_of_the_continuation(model):
    class Plain:
        def decode(self, ids):
            return " ".join(map(str, ids))

    prompts = torch.tensor([[5, 6, 7]])
    found = likeliest.judged(model, Plain(), prompts, [[8, 9, 8, 9, 8]])
    with torch.no_grad():
        chances = model(torch.tensor([[5, 6, 7, 8, 9, 8, 9, 8]]))[0].log_softmax(-1)
    expected = [-chances[t - 1, token].item() for t, token in enumerate([8, 9, 8, 9, 8], 3)]
    assert found["losses"][0] == pytest.approx(expected, abs=1e-4)
    assert found["texts"] == ["8 9 8 9 8"]
