"""The translator's arithmetic in a page against PyTorch's, on the recorded models and on others never trained."""

import base64
import copy
import math
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from attn_book.corpus import corpus
from attn_book.data import Batches, Vocab
from attn_book.widgets.base import Joined
from attn_book.widgets.exported import dequantised, export_translator
from attn_core import capture_attention
from attn_core.decode import beam, greedy
from attn_core.positions import Learned
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.transformer import Transformer, TransformerConfig
from tests.recorded.test_translators import recorded_model

pytestmark = pytest.mark.browser

PAIRS = corpus().test[:40]
RECORDED = ["bahdanau", "transformer"]
UNTRAINED = ["small bahdanau", "post-norm", "learned positions", "one vocabulary"]


@cache
def known(kind):
    """A model as exported, its weights in PyTorch, and its vocabularies."""
    if kind in RECORDED:
        return recorded_model(kind)
    vocabs = tuple(Vocab(getattr(p, side) for p in PAIRS) for side in ("source", "target"))
    if kind == "one vocabulary":
        vocabs = (Vocab([getattr(p, side) for p in PAIRS for side in ("source", "target")]),) * 2
    torch.manual_seed(0)
    model = untrained(kind, *map(len, vocabs))
    with torch.no_grad():  # as large as training makes them, so that nothing is nearly even, and no bias is zero
        for weight in model.parameters():
            spread = torch.randn_like(weight)
            weight.copy_(1.5 * weight.shape[-1] ** -0.5 * spread if weight.dim() > 1 else weight + 0.3 * spread)
        if kind == "small bahdanau":  # some of its sentences end, after one word or ten, so that beams compete
            model.decoder.output.logits.bias[Vocab.EOS] += 3.0
    return export_translator(model, *vocabs), dequantised(model).eval(), vocabs


def untrained(kind, source_size, target_size):
    if kind == "small bahdanau":
        encoder = Encoder(source_size, embed_dim=7, hidden_dim=5)
        return Seq2Seq(encoder, BahdanauDecoder(target_size, embed_dim=6, hidden_dim=9, memory_dim=10))
    sizes = {"num_layers": 3, "num_heads": 2, "feed_forward_dim": 10, "norm_first": kind == "learned positions"}
    config = TransformerConfig(
        target_size, source_vocab_size=None if kind == "one vocabulary" else source_size, model_dim=12, **sizes
    )
    return Transformer(config, positions=(lambda: Learned(64, 12)) if kind == "learned positions" else None)


@pytest.fixture
def opened(show):
    """A page in which `model` is open."""
    with show(f"<script>{Joined('page.js', 'translator_model.js')}</script>") as page:

        def go(kind):
            page.evaluate("(state) => { globalThis.model = openTranslator(state); }", known(kind)[0])
            return page

        yield go


def ids(kind, pair):
    source, target = known(kind)[2]
    return source.encode(pair.source), target.encode(pair.target)


def packed(array):
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f4").tobytes()).decode()


FOLLOW = """([source, target, off]) => {
  let state = model.start(model.encode(source), new Set(off));
  return [model.bos, ...target].map((id) => {
    const found = model.step(state, id);
    state = found.state;
    return { logits: found.logits, weights: found.weights };
  });
}"""
WORST = f"""([sentences, expected, off]) => sentences.map(([source, target], k) => {{
  const found = ({FOLLOW})([source, target, off]).flatMap(({{ logits }}) => [...logits]);
  const wanted = new Float32Array(bytesOf(expected[k]).buffer);
  return found.length === wanted.length ? Math.max(...found.map((x, i) => Math.abs(x - wanted[i]))) : NaN;
}})"""
PLAIN = f"""(given) => ({FOLLOW})(given)
  .map(({{ logits, weights }}) => [[...logits], weights.map((row) => [...row])])"""


@torch.no_grad()
def true_logits(model, vocabs, pairs):
    """Of each sentence the logits `(T + 1, V)`, each step given the true words before it."""
    (batch,) = Batches(pairs, *vocabs, batch_size=len(pairs))
    logits = model(batch.source, batch.source_lengths, batch.target_in)
    return [row[:length] for row, length in zip(logits, batch.target_lengths, strict=True)]


@torch.no_grad()
def true_logits_of(model, source, target):
    """As `true_logits`, of one sentence in ids."""
    whole, length = torch.tensor([[*source, Vocab.EOS]]), torch.tensor([len(source) + 1])
    return model(whole, length, torch.tensor([[Vocab.BOS, *target]]))[0]


@pytest.mark.parametrize("kind", RECORDED + UNTRAINED)
def test_each_row_of_weights_is_that_of_a_head_in_the_order_of_their_names(opened, kind):
    _, model, vocabs = known(kind)
    pair = PAIRS[3]
    (batch,) = Batches([pair], *vocabs, batch_size=1)
    with torch.no_grad(), capture_attention(model) as maps:
        model(batch.source, batch.source_lengths, batch.target_in)
    layers = [name for name in sorted(maps) if name == "decoder" or name.endswith("cross_attention")]
    expected = torch.cat([maps[name][0][0] for name in layers])
    page = opened(kind)
    found = page.evaluate(PLAIN, [*ids(kind, pair), []])
    weights = np.array([weights for _, weights in found]).transpose(1, 0, 2)
    assert weights.shape == (len(expected), len(pair.target) + 1, len(pair.source) + 1)
    np.testing.assert_allclose(weights, expected, atol=1e-4)
    heads = expected.shape[0] // len(layers)
    names = [f"layer {k} head {h}" for k in range(len(layers)) for h in range(heads)]
    assert page.evaluate("model.heads") == ([] if "bahdanau" in kind else names)


@pytest.mark.parametrize("kind", RECORDED + UNTRAINED)
def test_the_logits_are_pytorchs_and_a_head_that_is_off_passes_on_nothing(opened, kind):
    state, model, vocabs = known(kind)
    heads = state.get("heads", 1)
    count = heads * state.get("layers", 0)
    page = opened(kind)
    before = page.evaluate(PLAIN, [*ids(kind, PAIRS[0]), []])
    for off in ([], *([[0], [count - 2, count - 1], list(range(count))] if count else [])):
        silent, pairs = copy.deepcopy(model), PAIRS[:5] if off else PAIRS
        for index in off:
            out = silent.decoder.layers[index // heads].cross_attention.out.weight
            size, h = out.shape[1] // heads, index % heads
            with torch.no_grad():
                out[:, h * size : (h + 1) * size] = 0.0
        expected = true_logits(silent, vocabs, pairs)
        assert min(float(rows.std(-1).min()) for rows in expected) > 0.2, "logits that differ"
        given = [[ids(kind, p) for p in pairs], [packed(rows.numpy()) for rows in expected], off]
        worst = page.evaluate(WORST, given)
        assert len(worst) == len(pairs) and all(each < 1e-3 for each in worst), max(worst)
        after = page.evaluate(PLAIN, [*ids(kind, pairs[0]), off])
        assert (np.abs(np.subtract(after[-1][0], before[-1][0])).max() > 0.01) == bool(off)
        # What is off still looks, from what the layers below it make of the words.
        assert all(math.isclose(sum(row), 1, abs_tol=1e-4) for _, weights in after for row in weights)


def search(page, call, sentences, *more):
    """What a search gives for each of the sentences, in `ids`; `more` stands under `given`."""
    return page.evaluate(
        f"""([sentences, given]) => sentences.map((ids) => {{
          const memory = model.encode(ids);
          const plain = ({{ tokens, logProbs, weights, candidates, finished }}) =>
            ({{ tokens, logProbs, weights: weights.map((rows) => rows.map((row) => [...row])), candidates, finished }});
          const found = {call};
          return Array.isArray(found) ? found.map(plain) : plain(found);
        }})""",
        [sentences, list(more)],
    )


NAMES = {"beam_size": "beamSize", "length_penalty": "lengthPenalty"}


@pytest.mark.parametrize("options", [{}, {"beam_size": 1}, {"beam_size": 3, "length_penalty": 0.5}, {"beam_size": 4}])
def test_the_searches_are_those_of_python_wherever_sentences_end(opened, options):
    _, model, _ = known("small bahdanau")
    page, ended = opened("small bahdanau"), []
    lists = [ids("small bahdanau", pair)[0] for pair in PAIRS]
    source = pad_sequence([torch.tensor([*each, Vocab.EOS]) for each in lists], batch_first=True)
    lengths = torch.tensor([len(each) + 1 for each in lists])
    for most in (1, 4, 12):
        given = {"maxLength": most} | {NAMES[name]: value for name, value in options.items()}
        if options:
            expected = beam(model, source, lengths, max_length=most, **options)
            found = search(page, "beamSearch(model, memory, given[0])[0]", lists, given)
        else:
            expected = greedy(model, source, lengths, max_length=most)
            found = search(page, "greedy(model, memory, given[0])", lists, given)
        for one, true in zip(found, expected, strict=True):
            assert (one["tokens"], one["finished"]) == (true.ids, true.finished)
            assert sum(one["logProbs"]) == pytest.approx(true.log_probability, abs=2e-3)
            ended.append(true.finished)
    assert any(ended) and not all(ended)


@pytest.mark.parametrize("kind", RECORDED)
def test_forced_words_come_first_and_decoding_goes_on_from_them(opened, kind):
    _, model, vocabs = known(kind)
    page, (source, target) = opened(kind), ids(kind, PAIRS[3])
    forced = [*vocabs[1].encode(["une"]), target[1]]
    assert forced[0] != target[0]
    calls = ["greedy(model, memory, given[0])", "beamSearch(model, memory, given[0])"]
    ((one,), (beams,)) = (search(page, call, [source], {"forced": forced}) for call in calls)
    assert len(beams) > 1 and all(each["tokens"][:2] == forced for each in (one, *beams))
    for each in (one, *beams):
        log_probs = true_logits_of(model, source, each["tokens"]).log_softmax(-1)
        rows = range(len(log_probs))
        np.testing.assert_allclose(each["logProbs"], log_probs[rows, [*each["tokens"], Vocab.EOS]], atol=1e-3)
    best = true_logits_of(model, source, one["tokens"]).argmax(-1).tolist()
    assert best[2:] == [*one["tokens"][2:], Vocab.EOS] and best[:2] != forced
    # Who is forced to say what he would have said anyway says the same.
    (free,), (held,) = (search(page, calls[1], [source], {"forced": given}) for given in ([], target[:2]))
    assert free[0]["tokens"][:2] == target[:2] and held[0]["tokens"] == free[0]["tokens"]
    for call in calls:
        (nothing,) = search(page, call, [source], {"forced": [Vocab.EOS]})
        only = nothing if isinstance(nothing, dict) else nothing[0]
        assert only["tokens"] == [] and only["finished"] and len(only["logProbs"]) == 1


@pytest.mark.parametrize("kind", RECORDED + UNTRAINED)
def test_a_step_leaves_its_state_as_it_was(opened, kind):
    source, target = ids(kind, PAIRS[3])
    first, other, again = opened(kind).evaluate(
        """([source, target]) => {
          const memory = model.encode(source);
          const copy = JSON.stringify(memory);
          const before = model.step(model.step(model.start(memory), model.bos).state, target[0]).state;
          const kept = JSON.stringify(before);
          const first = model.step(before, target[1]);
          const ahead = model.step(first.state, target[2]);
          const other = model.step(before, target[2]);
          const again = model.step(before, target[1]);
          if (JSON.stringify(before) !== kept || JSON.stringify(memory) !== copy) throw new Error("changed");
          return [first, other, again].map(({ logits }) => [...logits]);
        }""",
        [source, target],
    )
    assert first == again and first != other
