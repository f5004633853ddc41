"""The Transformers with each approximate attention, where it can stand."""

from functools import partial

import pytest
import torch
from torch.nn import functional

from attn_core import BlockSelection, Linformer, LSHAttention, MultiHeadAttention, Performer, SlidingWindow
from attn_core.decode import beam, generate, greedy
from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel, Transformer, TransformerConfig, TransformerEncoder

SHARED = {"attention": partial(MultiHeadAttention, share_query_key=True)}
CAUSAL = {  # the settings, and the mechanism
    "window": ({}, lambda: SlidingWindow(3)),
    "dilated window, grouped heads": ({"num_kv_heads": 2}, lambda: SlidingWindow(2, dilation=2)),
    "block selection": ({}, lambda: BlockSelection(2, selected=1, local=1)),
    "block selection, grouped heads": ({"num_kv_heads": 2}, lambda: BlockSelection(2, selected=1, local=1)),
    "performer": ({}, lambda: Performer(4, 32)),
    "performer, grouped heads": ({"num_kv_heads": 2}, lambda: Performer(4, 32)),
    "LSH": (SHARED, lambda: LSHAttention(bucket_size=4, num_buckets=4)),
}
ANY = {
    **CAUSAL,
    "linformer": ({}, lambda: Linformer(20, 6)),
    "linformer, grouped heads": ({"num_kv_heads": 2}, lambda: Linformer(20, 6)),
}
LENGTHS = torch.tensor([11, 6, 1])


def small(**changes):
    sizes = {"model_dim": 16, "num_heads": 4, "num_layers": 2, "feed_forward_dim": 24, "dropout": 0.0}
    return TransformerConfig(13, **sizes, **changes)


def tokens(*shape, seed=0):
    return torch.randint(4, 13, shape, generator=torch.Generator().manual_seed(seed))


def translator(name, **mechanisms):
    return Transformer(small(**ANY[name][0]), **mechanisms)


def decoder(name):
    """Encoder–decoder with a mechanism of ``CAUSAL`` in the self-attentions of both."""
    return translator(name, encoder_mechanism=CAUSAL[name][1], decoder_mechanism=CAUSAL[name][1])


def language_model(name, **more):
    return LanguageModel(small(**CAUSAL[name][0]), mechanism=CAUSAL[name][1], **more)


def assert_learns(model, loss):
    """Every parameter gets a gradient, and one step along it lowers the loss."""
    before = loss()
    before.backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        # What a query's key bias adds to all its scores changes no weight.
        assert name.endswith(".key.bias") or parameter.grad.abs().max() > 0, name
    torch.optim.SGD(model.parameters(), lr=0.01).step()
    with torch.no_grad():
        assert loss() < before


def next_token_loss(logits, text):
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), text[:, 1:].flatten())


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("name", ANY)
def test_encoder_only(name):
    model, text = TransformerEncoder(small(**ANY[name][0]), mechanism=ANY[name][1]), tokens(3, 11)
    true = torch.arange(11) < LENGTHS[:, None]
    out, padded = (model(x, LENGTHS) for x in (text, torch.where(true, text, 4)))
    torch.testing.assert_close(out[true], padded[true], atol=1e-5, rtol=0)
    wanted = torch.randn(3, 11, 16)
    assert_learns(model, lambda: functional.mse_loss(model(text, LENGTHS)[true], wanted[true]))


@pytest.mark.parametrize("name", CAUSAL)
def test_decoder_only(name):
    model, text = language_model(name), tokens(3, 11)
    changed = text.clone()
    changed[:, 7:] = 4
    torch.testing.assert_close(model(text)[:, :7], model(changed)[:, :7], atol=1e-5, rtol=0)
    assert_learns(model, lambda: next_token_loss(model(text), text))


@pytest.mark.parametrize("name", CAUSAL)
def test_encoder_decoder(name):
    model, source, target = decoder(name), tokens(3, 11), tokens(3, 9, seed=1)
    changed = target.clone()
    changed[:, 5:] = 4
    out, other = (model(source, LENGTHS, x) for x in (target, changed))
    torch.testing.assert_close(out[:, :5], other[:, :5], atol=1e-5, rtol=0)
    hidden = source.where(torch.arange(11) < LENGTHS[:, None], 4)
    torch.testing.assert_close(model(hidden, LENGTHS, target), out, atol=1e-5, rtol=0)
    assert_learns(model, lambda: next_token_loss(model(source, LENGTHS, target), target))


@pytest.mark.parametrize("name", ["linformer", "linformer, grouped heads", "performer"])
def test_what_is_not_causal_may_read_the_source_and_still_decode_with_a_cache(name):
    model = translator(name, encoder_mechanism=ANY[name][1], cross_mechanism=ANY[name][1])
    source, target = tokens(3, 11), tokens(3, 9, seed=1)
    assert_learns(model, lambda: next_token_loss(model(source, LENGTHS, target), target))
    assert_steps_equal_one_pass(model, source, target)


@pytest.mark.parametrize("name", CAUSAL)
def test_steps_with_the_cache_give_the_logits_of_one_pass(name):
    model = decoder(name)
    assert_steps_equal_one_pass(model, tokens(3, 11), tokens(3, 9, seed=1))
    found = beam(model, tokens(3, 11), LENGTHS, beam_size=2, max_length=5)
    assert len(found) == 3


def assert_steps_equal_one_pass(model, source, target):
    model.eval()
    with torch.no_grad():
        state, found = model.init_state(source, LENGTHS), []
        for t in range(target.shape[1]):
            logits, state = model.step(target[:, t], state)
            found.append(logits)
        torch.testing.assert_close(torch.stack(found, 1), model(source, LENGTHS, target), atol=1e-5, rtol=1e-5)
    assert len(greedy(model, source, LENGTHS, max_length=5)) == len(source)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_language_model_continues_prompts_of_one_length(name):
    model, text = language_model(name, positions=lambda: Rotary(4)).eval(), tokens(3, 90)
    logits, state = model.prefill(text[:, :7], torch.tensor([7, 7, 7]))
    found = [logits]
    for t in range(7, 89):  # past the room that the caches have at first
        logits, state = model.step(text[:, t], state)
        found.append(logits)
    torch.testing.assert_close(torch.stack(found, 1), model(text)[:, 6:89], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("window", "^lengths: expected rows of one length without padding, as SlidingWindow needs, got"),
        ("performer", "^mask: expected one that hides keys from all heads and queries"),
    ],
)
def test_prompts_that_cannot_be_read_together_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        generate(language_model(name), [[4, 5, 6], [7]], max_new_tokens=2)


def test_a_window_is_refused_between_target_and_source():
    with pytest.raises(ValueError, match="^cross_mechanism: expected one that places no queries, got SlidingWindow"):
        Transformer(small(), cross_mechanism=lambda: SlidingWindow(3))


def test_a_linformer_is_refused_in_a_decoder():
    with pytest.raises(ValueError, match="^causal: expected False, since each slot mixes all keys, got True"):
        LanguageModel(small(), mechanism=lambda: Linformer(20))(tokens(2, 5))
    model = Transformer(small(), decoder_mechanism=lambda: Linformer(20))
    with pytest.raises(ValueError, match="^causal: expected False, since each slot mixes all keys, got True"):
        greedy(model, tokens(3, 11), LENGTHS, max_length=5)
