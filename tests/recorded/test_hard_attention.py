"""The recorded run of hard attention from a warm start, at a tiny size."""

import json

import torch

from attn_book.corpus import corpus
from attn_core.seq2seq import BahdanauDecoder, HardDecoder
from recorded import hard_attention


def test_hard_attention_begins_with_the_parameters_of_soft_attention(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    monkeypatch.setattr(hard_attention, "corpus", lambda: corpus(train=96, valid=6, test=6, structures=6))
    monkeypatch.setattr(hard_attention, "EPOCHS", 1)
    seen = []

    def scores(model, pairs, vocabs):
        seen.append((type(model.decoder), [parameter.detach().clone() for parameter in model.parameters()]))
        return {"bleu": float(len(seen)), "alignment_error": 0.5}

    monkeypatch.setattr(hard_attention, "scores", scores)
    found = hard_attention.run(tmp_path)
    json.dumps(found, allow_nan=False)
    (one,) = found["runs"]
    (soft, first), (hard, second), *_, (last, third) = seen
    assert (soft, hard, last) == (BahdanauDecoder, HardDecoder, HardDecoder)
    assert all(map(torch.equal, first, second)) and not all(map(torch.equal, second, third))
    assert one["soft"]["bleu"] == 1 and one["hard, not trained"]["bleu"] == 2
    assert [point["bleu"] for point in one["curve"]] == [3, 4, 5] and one["hard, trained"]["bleu"] == 6
