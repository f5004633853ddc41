"""The recorded readings of long texts: how needles are hidden, and that reading in chunks and asking change nothing."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from attn_core import attention
from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel, TransformerConfig
from recorded import long_context as recorded


class Words:
    """A tokenizer of whole words."""

    def __init__(self):
        self.words = []

    def encode(self, text):
        for word in text.split():
            if word not in self.words:
                self.words.append(word)
        return SimpleNamespace(ids=[self.words.index(word) for word in text.split()])

    def decode(self, ids):
        return " ".join(self.words[i] for i in ids)


@pytest.fixture
def needles():
    return recorded.Needles(Words(), seed=0, count=4)


def test_what_is_hidden_stands_where_it_should_and_nothing_of_the_text_is_lost(needles):
    text, places = list(range(1000, 1100)), [5, 30, 55, 80]
    tokens, own = recorded.hidden(text, needles, places, 120)
    assert tokens.shape == (1, 120) and own.shape == (120,)
    for door, place in zip(needles.doors, places, strict=True):
        sentence = needles.sentence(door)
        assert tokens[0, place : place + len(sentence)].tolist() == sentence
        assert not own[place : place + len(sentence)].any()
    assert tokens[0, own].tolist() == text[: int(own.sum())]
    with pytest.raises(ValueError, match="text: expected at least 200 tokens with the needles"):
        recorded.hidden(text, needles, places, 200)


def test_reading_in_chunks_and_asking_gives_the_losses_of_one_call(needles, monkeypatch):
    monkeypatch.setattr(recorded, "CHUNK", 16)
    torch.manual_seed(0)
    config = TransformerConfig(200, model_dim=16, num_heads=2, num_layers=2, feed_forward_dim=16, dropout=0.0)
    model = LanguageModel(config, positions=lambda: Rotary(8)).eval()
    text = torch.randint(80, (120,)).tolist()
    places = [5, 30, 55, 80]
    tokens, _ = recorded.hidden(text, needles, places, 128)
    with torch.no_grad():
        found = recorded.read(model, tokens, needles, places, (48, 128))
        wanted = functional.cross_entropy(model(tokens)[0, :-1], tokens[0, 1:], reduction="none")
    torch.testing.assert_close(found["losses"], wanted, rtol=0, atol=1e-4)
    assert [(a["read"], a["at"]) for a in found["answers"]] == [
        (48, 5),
        (48, None),
        *((128, p) for p in places),
        (128, None),
    ]
    assert all(0 <= a["planted_before"] <= a["before"] < len(recorded.WORDS) for a in found["answers"] if a["at"])


def test_positions_within_the_cache_are_those_of_a_text_without_what_was_left_out(monkeypatch):
    monkeypatch.setattr(recorded, "SINKS", 2)
    monkeypatch.setattr(recorded, "WINDOW", 5)
    positions, n = Rotary(8), 12
    q, k, v = torch.randn(3, 1, 2, n, 8, generator=torch.Generator().manual_seed(0)).double()
    rotated = [positions.rotate(x, torch.arange(n)) for x in (q, k)]
    out = recorded.SinksAndWindow(positions)(rotated[0][:, :, 4:], rotated[1], v, causal=True)
    for query in range(4, n):
        kept = torch.tensor([*range(min(2, query - 4)), *range(query - 4, query + 1)])
        text = torch.arange(len(kept))
        one, keys = positions.rotate(q[:, :, query, None], text[-1:]), positions.rotate(k[:, :, kept], text)
        torch.testing.assert_close(out[:, :, query - 4, None], attention(one, keys, v[:, :, kept]))


def test_the_chapters_have_enough_prose_without_markup():
    assert len(recorded.prose().split()) > 12_500 and not set(recorded.prose()) & set("{}$[]<|`*")
