"""What the widgets say is whole sentences that a catalogue can hold, and the prose in their state is said, too.

That all of it is said, in every state, is tested in a browser: tests/browser/test_translated_widgets.py."""

import re

import numpy as np
import torch

from attn_book.widgets import (
    AttentionHeatmap,
    OnlineSoftmaxStepper,
    PatchAttentionExplorer,
    PositionalEncodingExplorer,
    Quiz,
)
from tests.widgets.said import catalogue


def test_the_catalogue_holds_whole_sentences():
    messages = catalogue(str)
    assert len(messages) > 250
    assert {
        "You: {you} of {all} right. The model: {model} of {all}.",
        "key →",
        "ω·δ = {omega} · {delta} = {angle} rad ({size}°).",
        "{used} of {reserved} reserved slots hold a token: {share}\u00a0%.",
    } <= set(messages)
    assert [text for text in messages if not text.strip() or text != text.strip() or text[0] in ",;:)"] == []
    assert [text for text in messages if "${" in text or re.search(r"[{}]", re.sub(r"\{\w+\}", "", text))] == []


def test_a_widget_tells_the_prose_in_its_state():
    weights = torch.full((2, 3), 0.5)
    maps = {"Looking up": weights, "0": weights, "Looking on": weights}
    heatmap = AttentionHeatmap({name: [one[None, None]] for name, one in maps.items()}, "a b c".split(), "d e".split(),
                               title="Looking on")  # fmt: skip
    assert heatmap.said() == ["Looking on", "Looking up"], "each once, and none without a letter"
    picture = np.zeros((1, 4, 4, 3))
    patches = PatchAttentionExplorer(picture, [[[0.5, 0.5, 0, 0]]], patch_size=2, queries=[["word"]], answers=["Yes."])
    assert patches.said() == ["Attention over patches", "Yes."]
    options = [{"text": text, "right": text == "a", "why": f"So {text}."} for text in "ab"]
    assert Quiz([{"question": "Which?", "options": options}]).said() == ["Which?", "a", "So a.", "b", "So b."]
    assert OnlineSoftmaxStepper().said() == PositionalEncodingExplorer().said() == []
