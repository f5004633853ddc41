import json

import numpy as np
import pytest
import torch

from attn_book.data import Vocab
from attn_book.translation import translate
from attn_book.widgets.exported import dequantised, export_translator
from attn_book.widgets.translator import SENTENCE, Translator, read_words
from attn_core.capture import capture_attention
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.transformer import Transformer, TransformerConfig

SOURCE = Vocab([SENTENCE.split(), ["<b>&\"x'", "Dog", "$\\frac$"]])
TARGET = Vocab(["le chat noir ne boit pas la soupe chaude .".split(), ["</script>"]])


def transformer():
    torch.manual_seed(1)
    sizes = {"model_dim": 8, "num_heads": 2, "num_layers": 2, "feed_forward_dim": 8, "dropout": 0.5}
    return Transformer(TransformerConfig(len(TARGET), source_vocab_size=len(SOURCE), **sizes))


def recurrent():
    torch.manual_seed(1)
    encoder = Encoder(len(SOURCE), embed_dim=6, hidden_dim=5, dropout=0.5)
    return Seq2Seq(encoder, BahdanauDecoder(len(TARGET), embed_dim=6, hidden_dim=7, memory_dim=10, dropout=0.5))


def ending(model):
    """The model with a liking for <eos>."""
    with torch.no_grad():
        model.decoder.output.logits.bias[Vocab.EOS] = 9.0
    return model


@pytest.fixture(scope="module")
def widget():
    return Translator.of(recurrent(), SOURCE, TARGET)


@pytest.mark.parametrize("make", [transformer, recurrent, lambda: ending(recurrent())])
def test_a_trained_model_is_exported_with_what_it_makes_of_the_sentence(make):
    model = make().train()
    widget = Translator.of(model, SOURCE, TARGET)
    assert model.training, "left in the mode it was in"
    example = widget.exported["example"]
    assert {name: part for name, part in widget.exported.items() if name != "example"} == export_translator(
        model, SOURCE, TARGET
    )
    faithful = dequantised(model).eval()
    (found,) = translate(faithful, [SENTENCE.split()], SOURCE, TARGET, max_length=60)
    assert example["source"] == [*SENTENCE.split(), "<eos>"]
    assert example["words"] == found.words + ["<eos>"] * found.finished
    if found.words and found.attention is not None:
        np.testing.assert_allclose(example["weights"][: len(found.words)], found.attention, atol=1e-4)


def test_the_weights_kept_are_the_mean_of_all_heads_that_look_at_the_source():
    model = transformer()
    example = Translator.of(model, SOURCE, TARGET).exported["example"]
    ids = torch.tensor([[*SOURCE.encode(SENTENCE.split()), Vocab.EOS]])
    before = torch.tensor([[Vocab.BOS, *TARGET.encode(example["words"])[:-1]]])
    faithful = dequantised(model).eval()
    with capture_attention(faithful) as maps, torch.no_grad():
        faithful(ids, torch.tensor([11]), before)
    crossed = [maps[f"decoder.layers.{k}.cross_attention"][0][0] for k in (0, 1)]
    np.testing.assert_allclose(example["weights"], torch.cat(crossed).mean(0), atol=1e-4)


def test_a_file_holds_what_the_page_needs(widget, tmp_path):
    path = tmp_path / "translator.json"
    path.write_text(json.dumps(widget.exported), encoding="utf-8")
    for given in (path, str(path)):
        loaded = Translator.load(given)
        assert loaded.exported == widget.exported and loaded.static_html() == widget.static_html()
    assert Translator.load(path, "the cat .").sentence == "the cat ."


@pytest.mark.parametrize("given", [None, [], "x", {}, {"kind": "bahdanau", "source": [], "target": []}])
def test_refuses_what_was_not_exported(widget, given):
    for wrong in (given, {**widget.exported, "source": "a b"}):
        with pytest.raises(ValueError, match="^exported: expected "):
            Translator(wrong)


@pytest.mark.parametrize("sentence", ["the zebra 's cat", "the <eos>", "dog", "  ", ["the", "cat"], None])
def test_refuses_a_sentence_that_the_model_cannot_read(widget, sentence):
    for attempt in (
        lambda: Translator(widget.exported, sentence),
        lambda: Translator.of(recurrent(), SOURCE, TARGET, sentence),
        lambda: setattr(widget, "sentence", sentence),
    ):
        with pytest.raises(ValueError, match="^sentence: expected"):
            attempt()
    assert widget.sentence == SENTENCE, "what was refused is taken back"


def test_a_sentence_is_split_as_text_or_stays_as_it_is():
    known = set(SOURCE.tokens)
    assert read_words("The cat doesn’t drink.", known) == "the cat does not drink .".split()
    assert read_words("the <b>&\"x' Dog", known) == ["the", "<b>&\"x'", "Dog"]
    assert read_words("it isn't", {"n't"}) == ["it", "is", "n't"]
    assert Translator.of(recurrent(), SOURCE, TARGET, "The cat doesn’t drink.").exported["example"]["source"] == [
        *"the cat does not drink .".split(), "<eos>"
    ]  # fmt: skip


def test_description_tells_the_sentence_its_translation_and_where_it_looks():
    widget = Translator.of(ending(recurrent()), SOURCE, TARGET)
    weights = widget.exported["example"]["weights"]
    most = [*SENTENCE.split(), "<eos>"][int(np.argmax(weights[0]))]
    assert widget.describe() == (
        "A translator that runs in this page, recurrent, with Bahdanau’s attention. Sentence: the black cat does not "
        f"drink the hot soup . Translation: <eos> Greatest weights: <eos> → {most}."
    )
    widget.sentence = "the cat ."
    assert widget.describe().endswith("attention. Sentence: the cat .")
    assert "this page, a Transformer. Sentence" in Translator.of(transformer(), SOURCE, TARGET).describe()


def test_a_model_that_writes_nothing_is_refused():
    silent = recurrent()
    with torch.no_grad():
        silent.decoder.output.logits.bias[Vocab.PAD] = 99.0
    with pytest.raises(ValueError, match=r"^model: expected one that writes words, got none in 60 steps"):
        Translator.of(silent, SOURCE, TARGET)
