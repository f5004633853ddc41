from functools import partial
from itertools import cycle

import pytest
import torch

from attn_core.cache import KVCache
from attn_core.mechanisms.additive import AdditiveAttention
from attn_core.mechanisms.dense import Dense
from attn_core.mechanisms.lsh import LSHAttention
from attn_core.mechanisms.window import SlidingWindow
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import ALiBi, Learned, Rotary, Sinusoidal
from attn_core.transformer import (
    LanguageModel,
    SwiGLU,
    TokenEmbedding,
    Transformer,
    TransformerConfig,
    TransformerEncoder,
)
from attn_core.transformer.stacks import new_caches

SMALL = TransformerConfig(13, model_dim=16, num_heads=4, num_layers=2, feed_forward_dim=24)
POSITIONS = {
    "sinusoidal": None,
    "learned": lambda: Learned(200, 16),
    "rotary": lambda: Rotary(4),
    "ALiBi": lambda: ALiBi(4),
}
ORDERS = {"post-norm": {}, "pre-norm": {"norm_first": True}, "grouped": {"num_kv_heads": 2}}


def small(**changes):
    return TransformerConfig(**{**vars(SMALL), **changes})


def tokens(*shape, seed=0, size=13):
    return torch.randint(4, size, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_the_base_model_has_about_the_papers_parameters():
    with torch.device("meta"):
        model = Transformer(TransformerConfig.base())
    assert model.config.vocab_size == 37_000
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(65e6, rel=0.04)


def test_swiglu_multiplies_hidden_values_by_gates():
    layer, x = SwiGLU(6, 10, bias=False), torch.randn(2, 5, 6)
    gates = x @ layer.gate.weight.T
    expected = (gates * gates.sigmoid() * (x @ layer.hidden.weight.T)) @ layer.out.weight.T
    torch.testing.assert_close(layer(x), expected)


def test_embedding_is_scaled_to_the_size_of_the_positions():
    config = TransformerConfig(500, model_dim=256, num_heads=4, num_layers=1, feed_forward_dim=8, dropout=0.0)
    embedding = TokenEmbedding(500, config, None)
    ids = torch.arange(500)[None]
    assert embedding(ids).std().item() == pytest.approx(1, abs=0.02)
    torch.testing.assert_close(embedding(ids), embedding.tokens.weight[None] * 16)
    placed = TokenEmbedding(500, config, Sinusoidal(256))
    assert not torch.equal(placed(ids, 0), placed(ids, 3))
    normal = torch.randn(4, 256)
    torch.testing.assert_close(embedding.logits(normal), normal @ embedding.tokens.weight.T)
    assert embedding.logits(normal).std().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("kind", POSITIONS)
@pytest.mark.parametrize("order", ORDERS)
def test_steps_with_the_cache_give_the_logits_of_one_pass(kind, order):
    """Over more tokens than the caches have room for at first."""
    model = Transformer(small(**ORDERS[order]), positions=POSITIONS[kind]).eval()
    source, lengths, target = tokens(2, 6), torch.tensor([6, 3]), tokens(2, 70, seed=1)
    expected = model(source, lengths, target)
    state, found = model.init_state(source, lengths), []
    for t in range(70):
        logits, state = model.step(target[:, t], state)
        found.append(logits)
    torch.testing.assert_close(torch.stack(found, 1), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", POSITIONS)
def test_a_language_model_continues_ragged_prompts_as_each_alone(kind):
    model = LanguageModel(small(norm_first=True), positions=POSITIONS[kind]).eval()
    text, lengths = tokens(3, 80), torch.tensor([5, 1, 3])
    logits, state = model.prefill(text[:, :5], lengths)
    found = [logits]
    # Each row goes on with its own next token.
    for t in range(70):
        logits, state = model.step(text[torch.arange(3), lengths + t], state)
        found.append(logits)
    for row, length in enumerate(lengths.tolist()):
        expected = model(text[row : row + 1, : length + 70])[0, length - 1 :]
        torch.testing.assert_close(torch.stack(found)[:, row], expected, atol=1e-5, rtol=1e-5)


def test_selected_rows_of_a_state_go_on_by_themselves():
    translator, writer = Transformer(small()).eval(), LanguageModel(small()).eval()
    prompt = tokens(3, 6), torch.tensor([6, 3, 4])
    for model, begin in ((translator, translator.init_state), (writer, lambda *prompt: writer.prefill(*prompt)[1])):
        whole, some = begin(*prompt), begin(*prompt)
        rows, word = torch.tensor([2, 0, 2]), tokens(3, seed=2)
        chosen, whole = model.step(word[rows], some.select(rows))[0], model.step(word, whole)[0]
        torch.testing.assert_close(chosen, whole[rows], atol=1e-6, rtol=1e-5)


def test_a_prompt_goes_on_from_what_the_caches_hold():
    model, text = LanguageModel(small(), positions=POSITIONS["rotary"]).eval(), tokens(2, 9)
    caches = new_caches(model.stack.layers, 2, 9)
    model.prefill(text[:, :5], torch.tensor([5, 3]), caches)
    logits, _ = model.prefill(text[:, 5:], torch.tensor([2, 4]), caches)
    for row, prompt in enumerate(([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 5, 6, 7, 8])):
        torch.testing.assert_close(logits[row], model(text[[row]][:, prompt])[0, -1], atol=1e-5, rtol=1e-5)


class Failing(Dense):
    """A mechanism that raises when it is told to."""

    fails = False

    def forward(self, *inputs, **options):
        if self.fails:
            raise RuntimeError("out of memory")
        return super().forward(*inputs, **options)


@pytest.mark.parametrize("norm_first", [True, False])  # read flat, and by its modules
def test_a_step_that_fails_in_the_last_layer_can_be_made_again(norm_first):
    model = LanguageModel(small(num_layers=3, norm_first=norm_first), mechanism=Failing).eval()
    text, lengths, last = tokens(2, 6), torch.tensor([4, 3]), model.stack.layers[-1].attention.mechanism
    caches = new_caches(model.stack.layers, 2, 9)
    last.fails = True
    with pytest.raises(RuntimeError, match="out of memory"):
        model.prefill(text[:, :4], lengths, caches)
    assert [cache.lengths.tolist() for cache in caches] == [[0, 0]] * 3
    last.fails = False
    _, state = model.prefill(text[:, :4], lengths, caches)
    last.fails = True
    with pytest.raises(RuntimeError, match="out of memory"):
        model.step(text[[0, 1], [4, 3]], state)
    assert [cache.lengths.tolist() for cache in state.caches] == [[4, 3]] * 3
    last.fails = False
    logits, _ = model.step(text[[0, 1], [4, 3]], state)
    torch.testing.assert_close(logits[0], model(text[:1, :5])[0, -1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logits[1], model(text[1:, :4])[0, -1], atol=1e-5, rtol=1e-5)


def test_a_translators_step_that_fails_in_the_last_layer_can_be_made_again():
    model = Transformer(small(num_layers=3), cross_mechanism=Failing).eval()
    source, lengths, target = tokens(2, 6), torch.tensor([6, 3]), tokens(2, 3, seed=1)
    state = model.init_state(source, lengths)
    _, state = model.step(target[:, 0], state)
    last = model.decoder.layers[-1].cross_attention.mechanism
    last.fails = True
    with pytest.raises(RuntimeError, match="out of memory"):
        model.step(target[:, 1], state)
    last.fails = False
    logits, _ = model.step(target[:, 1], state)
    torch.testing.assert_close(logits, model(source, lengths, target)[:, 1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["sinusoidal", "rotary"])
def test_a_language_model_that_hashes_continues_what_it_reads(kind):
    """With a number of buckets of its own, LSH attention reads a beginning as it does within the whole."""
    config = small(num_layers=3, attention=partial(MultiHeadAttention, share_query_key=True))
    model = LanguageModel(
        config, mechanism=lambda: LSHAttention(bucket_size=4, num_buckets=4), positions=POSITIONS[kind]
    ).eval()
    text, lengths = tokens(3, 30), torch.tensor([5, 1, 9])
    logits, state = model.prefill(text[:, :9], lengths)
    for t in range(20):
        for row, length in enumerate((lengths + t).tolist()):
            torch.testing.assert_close(logits[row], model(text[[row], :length])[0, -1], atol=1e-5, rtol=1e-5)
        logits, state = model.step(text[torch.arange(3), lengths + t], state)


@pytest.mark.parametrize(("layers", "rows"), [(1, 2), (2, 3), (0, 2)])
def test_caches_for_other_layers_or_rows_are_refused(layers, rows):
    model, caches = LanguageModel(SMALL), [KVCache(rows, 4, 9, 4) for _ in range(layers)]
    got = rf"{layers} of \[{', '.join([str(rows)] * layers)}\] rows"
    with pytest.raises(ValueError, match=f"caches: expected 2, one for each layer, of 2 rows, got {got}"):
        model.prefill(tokens(2, 4), torch.tensor([4, 2]), caches)


@pytest.mark.parametrize("kind", POSITIONS)
def test_places_are_known(kind):
    encoder = TransformerEncoder(small(), positions=POSITIONS[kind]).eval()
    source, lengths, order = tokens(1, 6), torch.tensor([6]), torch.tensor([3, 1, 5, 0, 2, 4])
    moved = encoder(source[:, order], lengths) - encoder(source, lengths)[:, order]
    assert moved.abs().amax() > 0.1
    inside = kind in ("rotary", "ALiBi")
    assert (encoder.embedding.positions is None) == inside
    assert all((layer.attention.positions is None) != inside for layer in encoder.stack.layers)


def test_heads_of_keys_and_values_can_be_fewer():
    model = Transformer(small(num_kv_heads=2))
    layer = model.decoder.layers[0]
    assert layer.attention.key.out_features == layer.cross_attention.value.out_features == 8
    state = model.init_state(tokens(2, 4), torch.tensor([4, 2]))
    assert state.caches[0].keys.shape[1] == state.memory[0][0].shape[1] == 2


def test_embeddings_are_shared_or_not():
    shared, apart = Transformer(small()), Transformer(small(source_vocab_size=7))
    assert shared.source_embedding.tokens is shared.target_embedding.tokens
    assert apart.source_embedding.tokens.num_embeddings == 7 and apart.target_embedding.tokens.num_embeddings == 13
    assert "target_embedding.tokens.weight" in dict(shared.named_parameters())
    logits = apart(tokens(1, 4, size=7), torch.tensor([4]), tokens(1, 3))
    assert logits.shape == (1, 3, 13)


def test_each_layer_gets_a_mechanism_of_its_own():
    made = {"encoder": 0, "decoder": 0, "cross": 0}

    def factory(name):
        def make():
            made[name] += 1
            return AdditiveAttention(4, 5)

        return make

    model = Transformer(
        small(),
        encoder_mechanism=factory("encoder"),
        decoder_mechanism=factory("decoder"),
        cross_mechanism=factory("cross"),
    )
    assert made == {"encoder": 2, "decoder": 2, "cross": 2}
    layers = [*model.encoder.layers, *model.decoder.layers]
    mechanisms = [layer.attention.mechanism for layer in layers]
    mechanisms += [layer.cross_attention.mechanism for layer in model.decoder.layers]
    assert len({id(mechanism) for mechanism in mechanisms}) == 6
    model(tokens(2, 4), torch.tensor([4, 2]), tokens(2, 3)).sum().backward()
    assert all(p.grad is not None for mechanism in mechanisms for p in mechanism.parameters())


def test_layers_may_have_windows_and_full_attention_in_turn():
    turn = cycle([partial(SlidingWindow, 2, 0), Dense])
    model = LanguageModel(small(num_layers=4), mechanism=lambda: next(turn)()).eval()
    kinds = [type(layer.attention.mechanism) for layer in model.stack.layers]
    assert kinds == [SlidingWindow, Dense, SlidingWindow, Dense]
    read = tokens(2, 9)
    logits, state = model.prefill(read[:, :8], torch.tensor([8, 8]))
    torch.testing.assert_close(logits, model(read)[:, 7])
    torch.testing.assert_close(model.step(read[:, 8], state)[0], model(read)[:, 8])
