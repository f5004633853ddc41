"""The recorded run of context attention: models see what the record says that they see."""

import pytest
import torch

from attn_book.corpus import KINDS, ambiguous_words
from attn_book.data import Vocab
from recorded import context
from tests.recorded.test_runs import CONTEXT


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    for name, value in CONTEXT.items():
        monkeypatch.setattr(context, name, value)
    context.corpus.cache_clear()
    yield
    context.corpus.cache_clear()


def test_examples_are_encoded_as_they_are():
    examples = ambiguous_words(train=0, valid=0, test=18).test
    vocab = Vocab([example.paragraph.source for example in examples])
    nouns = [sense.noun.french[0] for pair in context.SENSES.values() for sense in pair]
    batch = context.encode(examples, vocab)
    for row, example in enumerate(examples):
        length = int(batch.lengths[row])
        words = [vocab.tokens[number] for number in batch.tokens[row, :length]]
        assert tuple(words) == example.paragraph.source and words[batch.positions[row]] == example.word
        assert tuple(batch.sentences[row, :length].tolist()) == example.paragraph.sentence_numbers
        assert batch.sentences[row, batch.positions[row]] == example.sentence
        assert nouns[batch.candidates[row, batch.senses[row]]] == example.translation
        assert example.kind == KINDS[row // 2 % 3]
    some = batch.at(torch.tensor([3, 1]))
    assert some.tokens.shape[1] == some.sentences.shape[1] == max(batch.lengths[3], batch.lengths[1])
    assert torch.equal(some.tokens[1, : batch.lengths[1]], batch.tokens[1, : batch.lengths[1]])


@pytest.mark.parametrize(("form", "told"), context.MODELS)
def test_every_model_sees_the_paragraph_and_what_it_is_told(form, told):
    test = context.corpus()[1]
    model = context.build(form, told, 0).eval()
    own = test.sentences.gather(1, test.positions[:, None])
    elsewhere = torch.where(test.sentences == own, test.tokens, (test.tokens + 1).clamp(max=context.corpus()[2] - 1))
    shuffled = {name: (getattr(test, name) > 0).long() for name in ("sentences", "pieces")}
    with torch.no_grad():
        before = model(test)
        assert not torch.allclose(before, model(test._replace(tokens=elsewhere)), atol=1e-5)
        for name, groups in shuffled.items():
            moved = not torch.allclose(before, model(test._replace(**{name: groups})), atol=1e-6)
            assert moved == (told == {"sentences": "sentences", "pieces": "random cuts"}[name])
