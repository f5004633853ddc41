"""The recorded run of two languages: what each kind reads, and which sentences are sought."""

import pytest

from attn_book.corpus import paragraph_corpus
from recorded import bilingual

PARAGRAPHS = paragraph_corpus(train=80, valid=0, test=0).train


def test_apart_no_paragraph_is_read_in_both_languages():
    texts = bilingual.texts_of("apart", PARAGRAPHS)
    read = [text.first for text in texts]
    assert read == [p.source for p in PARAGRAPHS[:40]] + [p.target for p in PARAGRAPHS[40:]]
    assert not any(text.second for text in texts)


def test_pairs_are_half_of_the_words_and_each_language_comes_first_as_often():
    texts = bilingual.texts_of("pairs", PARAGRAPHS)
    alone, pairs = [t for t in texts if not t.second], [t for t in texts if t.second]
    assert (len(alone), len(pairs)) == (40, 20)
    translation = {p.source: p.target for p in PARAGRAPHS}
    english_first = [t for t in pairs if translation.get(t.first) == t.second]
    french_first = [t for t in pairs if translation.get(t.second) == t.first]
    assert len(english_first) == len(french_first) == 10
    sides = {t.first for t in alone}
    assert not any(t.first in sides or t.second in sides for t in pairs)


def test_candidates_are_long_distinct_and_translations():
    english, french = bilingual.candidates(PARAGRAPHS, 50)
    assert len(english) == len(french) == len(set(english)) == len(set(french)) == 50
    pairs = {(pair.source, pair.target) for p in PARAGRAPHS for pair in p.sentences}
    assert set(zip(english, french, strict=True)) <= pairs
    assert min(map(len, (*english, *french))) >= bilingual.SHORTEST
    with pytest.raises(ValueError, match="count: expected at most"):
        bilingual.candidates(PARAGRAPHS, 5_000)
    read = PARAGRAPHS[:5]
    unread, _ = bilingual.candidates(PARAGRAPHS, 20, read)
    assert set(english[:5]) & {pair.source for p in read for pair in p.sentences}
    assert not set(unread) & {pair.source for p in read for pair in p.sentences}
