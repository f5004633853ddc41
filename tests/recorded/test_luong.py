"""The recorded runs of chapter 3 compare what they say they compare."""

import pytest
import torch

from attn_book.corpus import corpus
from attn_book.data import Batches, Vocab
from recorded import luong, output_layers, score_starts


def small_corpus(**sizes):
    return corpus(train=96, valid=6, test=6, structures=6)


@pytest.fixture
def task():
    pairs = list(small_corpus().train)
    vocabs = Vocab(p.source for p in pairs), Vocab(p.target for p in pairs)
    return next(iter(Batches(pairs[:4], *vocabs, batch_size=4))), *map(len, vocabs)


def test_the_models_of_one_comparison_differ_in_one_thing():
    for script in (luong, output_layers, score_starts):
        with pytest.raises(ValueError, match="kind: expected one of"):
            script.build("soft", 20, 30)
    sizes = {kind: sum(p.numel() for p in luong.build(kind, 20, 30).parameters()) for kind in luong.KINDS}
    swapped = {k: sum(p.numel() for p in output_layers.build(k, 20, 30).parameters()) for k in output_layers.KINDS}
    layer = swapped["concat, maxout"] - sizes["concat"]
    assert layer == sizes["Bahdanau"] - swapped["Bahdanau, no maxout"] > 0
    for kind in score_starts.KINDS:
        size = sum(p.numel() for p in score_starts.build(kind, 20, 30).parameters())
        assert size == sizes["dot" if kind == "dot, scaled" else "general"]


@pytest.mark.parametrize("kind", output_layers.KINDS)
def test_word_by_word_a_decoder_with_another_output_layer_gives_the_same(kind, task):
    batch, *sizes = task
    model = output_layers.build(kind, *sizes).eval()
    whole = model(batch.source, batch.source_lengths, batch.target_in)
    state = model.init_state(batch.source, batch.source_lengths)
    for t, tokens in enumerate(batch.target_in.unbind(1)):
        logits, state = model.step(tokens, state)
        torch.testing.assert_close(logits, whole[:, t])
