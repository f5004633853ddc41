"""What looks into a pretrained decoder: on a small model of our own."""

import pytest
import torch
from torch import nn

from attn_book.induction import head_off
from attn_book.microscope import (
    all_maps,
    attentions,
    cut_heads,
    duplicate_scores,
    first_token_scores,
    head_means,
    layer_input,
    rotary_parts,
    variance_shares,
)
from attn_core import MultiHeadAttention
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


@torch.no_grad()
def test_several_heads_and_their_means(model):
    means = head_means(model, TOKENS, torch.ones_like(TOKENS, dtype=torch.bool))
    assert means.shape == (3, 4, 8)
    with cut_heads(model, [(0, 0), (0, 3), (2, 1)], means):
        again = head_means(model, TOKENS, torch.ones_like(TOKENS, dtype=torch.bool))
    torch.testing.assert_close(again[0], means[0])  # seen before they are replaced
    with cut_heads(model, [(0, h) for h in range(4)], means), cut_heads(model, [(0, 1)]):
        assert model(TOKENS).isfinite().all()


def test_the_cut_ends_with_an_error_too(model):
    before = model(TOKENS)
    with pytest.raises(KeyError), cut_heads(model, [(0, 0)]):
        raise KeyError
    torch.testing.assert_close(model(TOKENS), before)


@pytest.mark.parametrize("heads", [[(3, 0)], [(0, 4)], [(-1, 0)]])
def test_heads_that_are_not_there_are_named(model, heads):
    with pytest.raises(ValueError, match=r"heads: expected \(layer, head\) below \(3, 4\)"), cut_heads(model, heads):
        pass


def test_means_of_another_shape_are_refused(model):
    expected = r"means: expected shape \(3, 4, 8\), got \(4, 8\)"
    with pytest.raises(ValueError, match=expected), cut_heads(model, [(0, 0)], torch.zeros(4, 8)):
        pass


def test_a_model_without_layers_is_refused():
    with pytest.raises(ValueError, match="expected one with layers in model.stack"):
        attentions(nn.Linear(2, 2))


def test_duplicates_counted_by_hand():
    weights = torch.zeros(1, 1, 4, 4)
    weights[0, 0, 2] = torch.tensor([0.5, 0.25, 0.25, 0.0])  # token 1 came at place 0
    weights[0, 0, 3] = torch.tensor([0.25, 0.5, 0.125, 0.125])  # token 1 at places 0 and 2
    tokens = torch.tensor([[1, 2, 1, 1]])
    assert duplicate_scores(weights, tokens).item() == pytest.approx((0.5 + 0.375) / 2)
    with pytest.raises(ValueError, match="expected some that came before"):
        duplicate_scores(weights, torch.tensor([[1, 2, 3, 4]]))
    with pytest.raises(ValueError, match=r"tokens: expected \(B, T\)"):
        duplicate_scores(weights, tokens[:, :3])


def test_the_weight_on_the_first_token():
    weights = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0.1, 0.2, 0.7]])[None, None]
    assert first_token_scores(weights).item() == pytest.approx(0.3)
    assert first_token_scores(weights, torch.tensor([[True, True, False]])).item() == pytest.approx(0.5)
    with pytest.raises(ValueError, match="two tokens at least"):
        first_token_scores(weights[..., :1, :1])


@torch.no_grad()
def test_the_parts_add_up_to_the_scores(model):
    for number in range(3):
        layer, x = attentions(model)[number], layer_input(model, TOKENS, number)
        parts = rotary_parts(layer, x)
        assert parts.shape == (4, 2, 4, 6, 6)
        scores = parts.sum(0).masked_fill(~torch.ones(6, 6).tril().bool(), -torch.inf)
        torch.testing.assert_close(scores.softmax(-1), all_maps(model, TOKENS)[number])
        torch.testing.assert_close(variance_shares(parts).sum(0), torch.ones(4))


def test_a_share_is_one_where_the_others_are_constant():
    parts = torch.zeros(3, 1, 2, 5, 5)
    parts[0] = torch.randn(1, 2, 5, 5)
    parts[1] = 7.0
    torch.testing.assert_close(variance_shares(parts), torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]))


def test_other_positions_are_refused():
    with pytest.raises(ValueError, match="expected one with Rotary positions"):
        rotary_parts(MultiHeadAttention(8, 2), torch.zeros(1, 3, 8))
