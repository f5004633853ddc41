"""The recorded needles in ten texts: what stands before and after a text is read as in one call, and then forgotten."""

import pytest
import torch

from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel, TransformerConfig
from recorded import needles as recorded
from tests.recorded.test_long_context import Words


@pytest.fixture
def small(monkeypatch):
    """Few and short texts."""
    for name, value in {"SEEDS": (0, 1), "TEXT": 80, "FIRST": 4, "EVERY": 20, "NEEDLES": 3, "CHUNK": 16}.items():
        monkeypatch.setattr(recorded, name, value)


@torch.no_grad()
def test_every_answer_is_that_of_one_call(small):
    torch.manual_seed(0)
    config = TransformerConfig(400, model_dim=16, num_heads=2, num_layers=2, feed_forward_dim=16, dropout=0.0)
    model = LanguageModel(config, positions=lambda: Rotary(8)).eval()
    tokenizer, prose = Words(), torch.randint(200, 400, (400,)).tolist()
    made, other = recorded.texts(tokenizer, prose, 3), torch.tensor([prose])
    for hidden, _ in made:
        hidden.question(hidden.absent)  # every word of a question gets its token
    tokenizer.words += [f"w{i}" for i in range(len(tokenizer.words), 400)]
    found = recorded.readings(model, made, other, (0, 40, 64), after=24)
    assert [(r["seed"], r["before"], r["after"]) for r in found] == [
        *((0, 0, 0), (0, 0, 24), (1, 0, 0), (1, 0, 24)),
        *((0, 40, 0), (1, 40, 0), (0, 64, 0), (1, 64, 0)),
    ]
    for reading in found:
        hidden, text = made[reading["seed"]]
        around = [other[:, : reading["before"]], text, other[:, : reading["after"]]]
        assert [answer["door"] for answer in reading["answers"]] == [*hidden.doors, hidden.absent]
        for answer in reading["answers"]:
            logits = model(torch.cat([*around, hidden.question(answer["door"])], 1))[0, -1]
            assert answer["says"] == tokenizer.decode([int(logits.argmax())])
            candidates = dict(zip(recorded.WORDS, logits[hidden.ids].tolist(), strict=True))
            assert answer["likeliest"] == max(candidates, key=candidates.get)
            if answer["door"] != hidden.absent:
                right = candidates[hidden.passwords[answer["door"]]]
                assert answer["ahead"] == sum(value > right for value in candidates.values())


def test_the_texts_are_different_parts_of_the_prose(small):
    prose = list(range(1000, 1400))
    (_, first), (_, second) = recorded.texts(Words(), prose, 3)
    parts = [[token for token in text[0].tolist() if token >= 1000] for text in (first, second)]
    assert first.shape == second.shape == (1, 80) and not set(parts[0]) & set(parts[1])
