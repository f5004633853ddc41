"""What a translator is exported as, and what is refused."""

import base64
import copy
import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from attn_book.corpus import corpus
from attn_book.data import Vocab
from attn_book.widgets.exported import dequantised, export_translator
from attn_core.mechanisms.dense import Dense
from attn_core.mechanisms.window import SlidingWindow
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Learned, Rotary
from attn_core.seq2seq import BahdanauDecoder, Encoder, FixedContextDecoder, Seq2Seq
from attn_core.transformer import LanguageModel, Transformer, TransformerConfig

PAIRS = corpus().test[:40]
ENGLISH, FRENCH = Vocab(p.source for p in PAIRS), Vocab(p.target for p in PAIRS)
SIZES = {"embed_dim": 6, "hidden_dim": 5}
SHARED = partial(MultiHeadAttention, share_query_key=True)
CONFIG = {"source_vocab_size": len(ENGLISH), "model_dim": 8, "num_heads": 2, "num_layers": 2, "feed_forward_dim": 12}


def recurrent(decoder=BahdanauDecoder, **options):
    encoder = Encoder(len(ENGLISH), **SIZES, **options)
    return Seq2Seq(encoder, decoder(len(FRENCH), **SIZES, memory_dim=encoder.memory_dim))


def transformer(*, positions=None, mechanism=Dense, **options):
    config = TransformerConfig(len(FRENCH), **CONFIG | options)
    return Transformer(config, positions=positions, encoder_mechanism=mechanism)


def stored(text, kind):
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), kind).astype(np.float32))


def restored(weights, name, shape):
    """A weight as a reader of the file makes it."""
    parts = weights[name]
    if len(shape) == 1:
        assert set(parts) == {"values"}
        return stored(parts["values"], "<f4")
    assert set(parts) == {"codes", "scales"}
    codes, scales = stored(parts["codes"], "i1"), stored(parts["scales"], "<f4")
    assert codes.abs().max() <= 127
    return codes.view(shape) * scales[:, None]


@pytest.mark.parametrize("model", [recurrent(), transformer(norm_first=True, positions=lambda: Learned(30, 8))])
def test_what_is_stored_is_what_the_dequantised_model_has(model):
    before = copy.deepcopy(model.state_dict())
    state, copied = export_translator(model, ENGLISH, FRENCH), dequantised(model)
    assert json.loads(json.dumps(state, allow_nan=False)) == state
    assert (state["source"], state["target"]) == (list(ENGLISH.tokens), list(FRENCH.tokens))
    assert set(state["weights"]) == {name for name, _ in model.named_parameters()}
    assert type(copied) is type(model)
    for name, weight in copied.named_parameters():
        true = before[name]
        assert torch.equal(weight, restored(state["weights"], name, true.shape)), name
        if weight.dim() == 1:
            assert torch.equal(weight, true)
        else:  # no further off than half a step, and the greatest of a row to the last digits
            step = true.abs().amax(1, keepdim=True) / 127
            assert ((weight - true).abs() <= step * 0.5001).all() and not torch.equal(weight, true)
            assert torch.allclose(weight.abs().amax(1), true.abs().amax(1))
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), "the model itself is left alone"


def test_the_page_is_told_what_the_weights_do_not_say():
    kept = ("kind", "layers", "heads", "norm_first", "base")
    told = export_translator(transformer(norm_first=True), ENGLISH, FRENCH)
    assert [told[name] for name in kept] == ["transformer", 2, 2, True, 10_000.0]
    told = export_translator(transformer(num_heads=4, positions=lambda: Learned(9, 8)), ENGLISH, FRENCH)
    assert [told[name] for name in kept] == ["transformer", 2, 4, False, None]
    assert set(export_translator(recurrent(), ENGLISH, FRENCH)) == {"kind", "source", "target", "weights"}


def test_a_matrix_that_serves_both_languages_is_stored_once():
    vocab = Vocab([*(p.source for p in PAIRS), *(p.target for p in PAIRS)])
    model = Transformer(TransformerConfig(len(vocab), **CONFIG | {"source_vocab_size": None}))
    names = [name for name in export_translator(model, vocab, vocab)["weights"] if "tokens" in name]
    assert names == ["target_embedding.tokens.weight"]


def test_a_row_of_zeros_stays_one():
    model = recurrent()
    with torch.no_grad():
        model.decoder.embedding.weight[3] = 0.0
    weights = export_translator(model, ENGLISH, FRENCH)["weights"]
    assert not restored(weights, "decoder.embedding.weight", (len(FRENCH), 6))[3].any()
    assert not dequantised(model).decoder.embedding.weight[3].any()


class Half(nn.Module):
    """Positions that a reader may have written."""

    def forward(self, x, offset=0):
        return x / 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LanguageModel(TransformerConfig(9, model_dim=8, num_heads=2)), "a Seq2Seq, got LanguageModel"),
        (lambda: recurrent(FixedContextDecoder), "a BahdanauDecoder, got Encoder and FixedContextDecoder"),
        (lambda: recurrent(num_layers=3), "num_layers=1 in the Encoder, got 3"),
        (lambda: recurrent(bidirectional=False), "an Encoder with bidirectional=True, got a unidirectional one"),
        (lambda: transformer(mechanism=lambda: SlidingWindow(2)), "Dense attention in encoder.* got SlidingW"),
        (lambda: transformer(positions=lambda: Rotary(4)), "positions that are added to the words, got Rotary"),
        (lambda: transformer(positions=Half), "expected Sinusoidal or Learned positions, got Half"),
        (lambda: transformer(num_kv_heads=1), "as many key-value heads as heads in encoder.*, got 1 for 2 heads"),
        (lambda: transformer(attention=SHARED), "a projection of their own in .*, got share_query_key"),
    ],
)  # fmt: skip
def test_what_the_page_cannot_run_is_refused(make, message):
    with pytest.raises(ValueError, match=f"^model: .*{message}"):
        export_translator(make(), ENGLISH, FRENCH)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["decoder.first.weight", "decoder.first.bias"])
def test_a_weight_that_is_not_finite_is_refused(name, wrong):
    model = recurrent()
    with torch.no_grad():
        model.get_parameter(name).view(-1)[1] = wrong
    with pytest.raises(ValueError, match=f"^model: expected finite weights, got others in {name}$"):
        export_translator(model, ENGLISH, FRENCH)


@pytest.mark.parametrize(
    ("vocabs", "message"),
    [
        ((FRENCH, FRENCH), f"^source_vocab: expected a Vocab of {len(ENGLISH)} words, .*, got {len(FRENCH)} words"),
        ((ENGLISH, ENGLISH), f"^target_vocab: expected a Vocab of {len(FRENCH)} words, .*, got {len(ENGLISH)} words"),
        ((ENGLISH, FRENCH.tokens), "^target_vocab: expected a Vocab .*, got tuple$"),
    ],
)
def test_vocabularies_must_be_the_models(vocabs, message):
    for model in (recurrent(), transformer()):
        with pytest.raises(ValueError, match=message):
            export_translator(model, *vocabs)
