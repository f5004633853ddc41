"""What looks into a pretrained decoder: on a small model of our own."""

import pytest
import torch

from attn_book.induction import head_off
from attn_book.microscope import (
    all_maps,
    attentions,
    cut_heads,
    duplicate_scores,
    first_token_scores,
    layer_input,
    rotary_parts,
    variance_shares,
)
from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel, TransformerConfig

TOKENS = torch.tensor([[1, 2, 3, 4, 2, 3], [5, 6, 7, 5, 6, 7]])


@pytest.fixture
def model():
    torch.manual_seed(0)
    sizes = {"model_dim": 32, "num_heads": 4, "num_kv_heads": 2, "num_layers": 3, "feed_forward_dim": 64}
    config = TransformerConfig(20, **sizes, dropout=0.0, norm_first=True)
    return LanguageModel(config, positions=lambda: Rotary(8)).eval()


def test_maps_of_every_head(model):
    maps = all_maps(model, TOKENS)
    assert maps.shape == (3, 2, 4, 6, 6)
    torch.testing.assert_close(maps.sum(-1), torch.ones(3, 2, 4, 6))


@torch.no_grad()
def test_a_cut_head_is_one_that_is_switched_off(model):
    before = model(TOKENS)
    with cut_heads(model, [(1, 2)]):
        cut = model(TOKENS)
    with head_off(attentions(model)[1], 2):
        torch.testing.assert_close(cut, model(TOKENS))
    assert not torch.allclose(cut, before)
    torch.testing.assert_close(model(TOKENS), before)


def test_duplicates_counted_by_hand():
    weights = torch.zeros(1, 1, 4, 4)
    weights[0, 0, 2] = torch.tensor([0.5, 0.25, 0.25, 0.0])  # token 1 came at place 0
    weights[0, 0, 3] = torch.tensor([0.25, 0.5, 0.125, 0.125])  # token 1 at places 0 and 2
    tokens = torch.tensor([[1, 2, 1, 1]])
    assert duplicate_scores(weights, tokens).item() == pytest.approx((0.5 + 0.375) / 2)


def test_the_weight_on_the_first_token():
    weights = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.1, 0.2, 0.7]])[None, None]
    assert first_token_scores(weights).item() == pytest.approx(0.3)
    assert first_token_scores(weights, torch.tensor([[True, True, False]])).item() == pytest.approx(0.5)


@torch.no_grad()
def test_the_parts_add_up_to_the_scores(model):
    for number in range(3):
        layer, x = attentions(model)[number], layer_input(model, TOKENS, number)
        parts = rotary_parts(layer, x)
        assert parts.shape == (4, 2, 4, 6, 6)
        scores = parts.sum(0).masked_fill(~torch.ones(6, 6).tril().bool(), -torch.inf)
        torch.testing.assert_close(scores.softmax(-1), all_maps(model, TOKENS)[number])
        torch.testing.assert_close(variance_shares(parts).sum(0), torch.ones(4))
