"""Paragraphs: one cast, one tense, and who is meant by a pronoun in either language."""

from collections import Counter

import pytest

from attn_book.corpus import NOUNS, VERBS, Paragraph, paragraph_corpus
from attn_book.corpus.paragraphs import STORIES
from attn_book.data import Pair

MEANT = {"he": "he", "him": "he", "she": "she", "her": "she", "it": "it"}


def gender(noun):
    """The pronoun that English has for a noun of the lexicon."""
    return "it" if "person" not in NOUNS[noun].classes else "she" if NOUNS[noun].gender == "f" else "he"


@pytest.fixture(scope="module")
def full():
    return paragraph_corpus(train=3_000, valid=300, test=300)


def everything(full):
    return (*full.train, *full.valid, *full.test)


def test_words_and_their_sentences(full):
    for paragraph in full.test:
        assert paragraph.source == sum((pair.source for pair in paragraph.sentences), ())
        assert paragraph.target == sum((pair.target for pair in paragraph.sentences), ())
        stops = [
            number for word, number in zip(paragraph.source, paragraph.sentence_numbers, strict=True) if word == "."
        ]
        assert stops == list(range(len(paragraph.sentences)))
        back = paragraph.reversed()
        assert (back.source, back.cast, back.story) == (paragraph.target, paragraph.cast, paragraph.story)
        assert back.reversed() == paragraph


def test_one_cast_and_one_setting(full):
    """Who acts in any sentence is of the cast, and the first sentence names the setting."""
    stories = {name: roles for name, roles, _ in STORIES}
    for paragraph in everything(full):
        assert paragraph.setting in paragraph.sentences[0].source
        assert [paragraph.story] * len(paragraph.sentences) == [pair.structure for pair in paragraph.sentences]
        for noun, classes in zip(paragraph.cast, stories[paragraph.story].values(), strict=True):
            assert not NOUNS[noun].classes.isdisjoint(classes)
        for word in paragraph.source:
            if word in NOUNS and not NOUNS[word].classes.isdisjoint(("person", "animal")):
                assert word in paragraph.cast


def test_pronouns_refer_back(full):
    """Each has been named before, and no other of the cast could be meant."""
    for paragraph in full.train:
        named = []
        for word in paragraph.source:
            if word in paragraph.cast:
                named.append(gender(word))
            if word in MEANT:
                assert MEANT[word] in named, paragraph
                assert [gender(noun) for noun in paragraph.cast].count(MEANT[word]) == 1, paragraph
            if word == "they":
                assert set(paragraph.cast[:2]) <= set(paragraph.source), paragraph


def test_french_pronouns_have_the_gender_of_what_they_stand_for(full):
    seen = Counter()
    for paragraph in full.train:
        by_pronoun = {gender(noun): NOUNS[noun].gender for noun in paragraph.cast}
        for pair in paragraph.sentences:
            for source, target in pair.links:
                if pair.source[source] in MEANT and pair.target[target] in ("il", "elle", "le", "la"):
                    feminine = pair.target[target] in ("elle", "la")
                    assert feminine == (by_pronoun[MEANT[pair.source[source]]] == "f"), pair
                    seen[pair.source[source], feminine] += 1
    assert {("it", True), ("it", False), ("he", False), ("she", True)} <= set(seen)


def test_one_tense(full):
    """Only "has it now" is in the present whatever comes before it."""
    past = {verb.past for verb in VERBS.values() if verb.past != verb.english} | {"were", "did"}
    present = {verb.third for verb in VERBS.values()} | {"are", "does"}
    for paragraph in full.train:
        tenses = set()
        for pair in paragraph.sentences:
            if not {"has", "have"} & set(pair.source):
                tenses |= {"past"} if past & set(pair.source) else set()
                tenses |= {"present"} if present & set(pair.source) else set()
        assert len(tenses) == 1, paragraph


@pytest.mark.parametrize("wrong", [(), [Pair(("a",), ("b",))], ("a",)])
def test_a_paragraph_is_made_of_pairs(wrong):
    with pytest.raises(ValueError, match="sentences: expected"):
        Paragraph(wrong)
