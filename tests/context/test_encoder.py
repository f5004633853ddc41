import dataclasses

import pytest
import torch
from torch import nn

from attn_book.context import DynamicContext, GlobalContext, HierarchicalContext
from attn_book.context.encoder import ContextEncoder, ContextLayer
from attn_core import MultiHeadAttention, capture_attention, masks
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
def test_a_mask_lets_no_padding_in(form):
    model, everything = make(form), torch.ones(6, 6, dtype=torch.bool)
    other = TOKENS.clone()
    other[1, 3:] = 10
    first, second = (model(words, LENGTHS, NUMBERS, mask=everything) for words in (TOKENS, other))
    assert torch.equal(first[1, :3], second[1, :3])


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


def test_forms_are_made_once_for_each_layer_and_all_learn():
    model = make(HierarchicalContext)
    assert len({id(layer.form) for layer in model.layers}) == 2
    model(TOKENS, LENGTHS, NUMBERS).square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for n, p in model.named_parameters() if "key.bias" not in n)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(TOKENS.float(), LENGTHS, NUMBERS), "tokens: expected an int64 or int32 tensor"),
        (lambda m: m(TOKENS + 5, LENGTHS, NUMBERS), "tokens: expected token ids from 0 to 10, got 14"),
        (lambda m: m(TOKENS, LENGTHS + 1, NUMBERS), "lengths: expected lengths from 0 to 6, got 7"),
        (lambda m: m(TOKENS, LENGTHS[:1], NUMBERS), r"lengths: expected shape \(2,\), got \(1,\)"),
        (lambda m: m(TOKENS, LENGTHS, NUMBERS[:, :5]), r"sentence_numbers: expected shape \(2, 6\)"),
        (lambda m: m(TOKENS, LENGTHS, NUMBERS, mask=TOKENS), "mask: expected a boolean tensor"),
        (lambda m: m(TOKENS, LENGTHS, NUMBERS, mask=TOKENS > 0), "mask: expected a shape that broadcasts"),
    ],
)
def test_wrong_inputs_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(make())


def test_what_it_cannot_build_is_refused():
    for changed in ({"num_kv_heads": 1}, {"share_query_key": True}):
        with pytest.raises(ValueError, match="config: expected"):
            make(config=dataclasses.replace(CONFIG, **changed))
    for form in (nn.Identity(), MultiHeadAttention(8, 2)):
        with pytest.raises(ValueError, match="form: expected a form of context with its context_dim"):
            ContextLayer(CONFIG, form)
