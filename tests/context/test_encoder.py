import dataclasses

import pytest
import torch

from attn_book.context import DynamicContext, GlobalContext, HierarchicalContext
from attn_book.context.encoder import ContextEncoder
from attn_core import capture_attention, masks
from attn_core.transformer import TransformerConfig, TransformerEncoder
from tests.context.test_attention import shut

CONFIG = TransformerConfig(11, model_dim=8, num_heads=2, num_layers=2, feed_forward_dim=12, dropout=0.0)
TOKENS = torch.tensor([[4, 5, 6, 7, 8, 9], [4, 9, 5, 0, 0, 0]])
LENGTHS = torch.tensor([6, 3])
NUMBERS = torch.tensor([[0, 0, 1, 1, 2, 2], [0, 0, 1, 0, 0, 0]])
FORMS = [GlobalContext, HierarchicalContext, DynamicContext]


def make(form=DynamicContext, config=CONFIG):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ContextEncoder(config, form)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_without_context_weight_it_is_the_transformers_encoder(form, norm_first):
    config = dataclasses.replace(CONFIG, norm_first=norm_first)
    ours, plain = make(form, config), TransformerEncoder(config)
    for layer in ours.layers:
        shut(layer.attention)
    own = {name: p for name, p in ours.state_dict().items() if not any(s in name for s in ("form", "gate", "_context"))}
    plain.load_state_dict({("" if "embedding" in name else "stack.") + name: p for name, p in own.items()})
    assert torch.equal(ours(TOKENS, LENGTHS, NUMBERS), plain(TOKENS, LENGTHS))


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_equals_its_parts_with_the_context_of_what_the_attention_reads(form):
    for norm_first in (True, False):
        model = make(form, dataclasses.replace(CONFIG, norm_first=norm_first))
        words = masks.length_mask(LENGTHS, 6)
        x = model.embedding(TOKENS)
        for layer in model.layers:
            read = layer.add_attention.norm(x) if norm_first else x
            added = layer.attention(read, layer.form(read, NUMBERS, words), mask=words[:, None, None])
            x = x + added if norm_first else layer.add_attention.norm(x + added)
            read = layer.add_feed_forward.norm(x) if norm_first else x
            x = x + layer.feed_forward(read) if norm_first else layer.add_feed_forward.norm(x + layer.feed_forward(x))
        torch.testing.assert_close(model(TOKENS, LENGTHS, NUMBERS), model.norm(x))


@pytest.mark.parametrize("form", FORMS)
def test_padding_changes_nothing(form):
    model = make(form)
    alone = model(TOKENS[1:, :3], LENGTHS[1:], NUMBERS[1:, :3])
    torch.testing.assert_close(model(TOKENS, LENGTHS, NUMBERS)[1:, :3], alone, atol=1e-6, rtol=0)
    other = TOKENS.clone()
    other[1, 3:] = 7
    assert torch.equal(model(other, LENGTHS, NUMBERS)[1, :3], model(TOKENS, LENGTHS, NUMBERS)[1, :3])


@pytest.mark.parametrize("form", FORMS)
def test_confined_to_its_sentence_a_word_feels_another_through_the_context_alone(form):
    model, other = make(form), TOKENS.clone()
    other[0, 5] = 10
    mask = masks.same_group(NUMBERS)

    def change():
        return (model(TOKENS, LENGTHS, NUMBERS, mask=mask) - model(other, LENGTHS, NUMBERS, mask=mask))[0, :4].abs()

    assert change().max() > 1e-6
    with capture_attention(model) as maps:
        model(TOKENS, LENGTHS, NUMBERS, mask=mask)
    for weights in (each for name, found in maps.items() if name.endswith("attention") for each in found):
        assert not weights.masked_select(~mask).any()
    for layer in model.layers:
        shut(layer.attention)
    assert change().max() == 0
