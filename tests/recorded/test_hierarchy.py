"""The recorded run of hierarchical attention: its documents, what padding changes, and what a mean is."""

import pytest
import torch

from attn_book.corpus import DOCUMENT_WORDS, SENSES, document_corpus
from attn_book.data import Vocab
from recorded import hierarchy, levels


@pytest.fixture(scope="module")
def documents():
    return document_corpus()


def test_documents_hold_their_example_among_fillers(documents):
    assert [len(part) for part in documents] == [4000, 800, 400]
    assert {len(one.sentences) for one in documents.longer} == {48}
    for one in (*documents.train[:200], *documents.test[:200]):
        assert 10 <= len(one.sentences) == len(one.numbers) <= 16 and one.example.word in DOCUMENT_WORDS
        own = [words for words, number in zip(one.sentences, one.numbers, strict=True) if number >= 0]
        assert own == [pair.source for pair in one.example.paragraph.sentences]
        fillers = [words for words, number in zip(one.sentences, one.numbers, strict=True) if number < 0]
        assert not {*SENSES} & {word for words in fillers for word in words}
    assert all(a.example.sense != b.example.sense for a, b in zip(*[iter(documents.train)] * 2, strict=True))


@pytest.mark.parametrize("attends", [True, False, *levels.FORMS])
def test_a_document_is_read_alike_alone_and_in_a_batch(documents, attends):
    vocab = Vocab(words for one in documents.test[:40] for words in one.sentences)
    torch.manual_seed(0)
    model = (levels if attends in levels.FORMS else hierarchy).Reader(len(vocab), attends).double()
    tokens, candidates, senses = hierarchy.encode(documents.test[:40], vocab)
    nouns = [hierarchy.NOUNS[row[sense]].french[0] for row, sense in zip(candidates, senses, strict=True)]
    assert nouns == [one.example.translation for one in documents.test[:40]]
    whole = model(tokens)
    alone = [model(hierarchy.encode([one], vocab)[0])[0] for one in documents.test[:40]]
    torch.testing.assert_close(torch.stack(alone), whole)
    if attends not in levels.FORMS:
        assert {pooling.question.any().item() for pooling in (model.words, model.sentences)} == {attends}


def test_only_the_first_layer_of_the_masked_form_keeps_to_a_sentence():
    torch.manual_seed(0)
    flat, masked = (levels.Reader(9, form).double() for form in ("flat", "masked"))
    masked.load_state_dict(flat.state_dict())
    text, split = torch.tensor([[[3, 4, 5, 6]]]), torch.tensor([[[3, 4], [5, 6]]])
    torch.testing.assert_close(flat(text), flat(split))
    assert not torch.allclose(masked(split), flat(split)) and not torch.allclose(masked(text), masked(split))


def test_a_tiny_run(monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    for name, value in {"SEEDS": (0,), "SIZES": (20,), "STEPS": 2}.items():
        monkeypatch.setattr(hierarchy, name, value)
    runs = hierarchy.run(tmp_path)["runs"]
    assert [(run["documents"], run["attends"]) for run in runs] == [(20, True), (20, False)]
    assert all(0.2 < run[test] < 0.8 for run in runs for test in ("test", "longer"))
