"""Ambiguous words: the paragraph tells the sense, their own sentence nothing, and no bag of words where that can be.

Twins have opposite senses: what both have in common, whatever reads it is right half the time.
"""

from collections import Counter

import pytest

from attn_book.corpus import NOUNS, SENSES, ambiguous_words

PEOPLE = {name: "she" if noun.gender == "f" else "he" for name, noun in NOUNS.items() if "person" in noun.classes}


@pytest.fixture(scope="module")
def full():
    return ambiguous_words(train=3_600, valid=300, test=900)


def everything(full):
    return (*full.train, *full.valid, *full.test)


def twins(full):
    return [pair for part in (full.train, full.valid, full.test) for pair in zip(part[::2], part[1::2], strict=True)]


def cues(word, sense):
    """The English nouns of the places that tell this sense."""
    return {noun.english[0] for _, noun in SENSES[word][sense].places}


def test_kinds_and_senses_are_balanced(full):
    assert set(Counter((e.kind, e.sense) for e in full.train).values()) == {600}
    assert {(e.word, e.sense) for e in full.train} == {(word, sense) for word in SENSES for sense in (0, 1)}
    for word in SENSES:
        assert sum(1 - 2 * e.sense for e in full.train if e.word == word) == 0


def test_positions(full):
    distances = Counter()
    for example in everything(full):
        paragraph = example.paragraph
        assert paragraph.source.count(example.word) == 1
        assert paragraph.source[example.position] == example.word
        assert paragraph.sentence_numbers[example.position] == example.sentence
        own = paragraph.sentences[example.sentence]
        (translated,) = [own.target[t] for s, t in own.links if own.source[s] == example.word]
        assert translated == example.translation == SENSES[example.word][example.sense].noun.french[0]
        assert cues(example.word, example.sense) & set(paragraph.sentences[example.deciding].source)
        distances[example.deciding - example.sentence] += 1
    assert set(distances) == {-5, -4, -3, -2, -1, 1, 2, 3, 4, 5} and min(distances.values()) > 50


def test_twins_share_all_but_what_decides(full):
    for one, two in twins(full):
        assert (one.word, one.kind, one.sentence, one.position, one.deciding) == (
            (two.word, two.kind, two.sentence, two.position, two.deciding)
        )
        assert {one.sense, two.sense} == {0, 1}
        pairs = zip(one.paragraph.sentences, two.paragraph.sentences, strict=True)
        differ = [number for number, (a, b) in enumerate(pairs) if a.source != b.source]
        assert one.deciding in differ and one.sentence not in differ
        assert len(differ) == (1 if one.kind == "plain" else 2)
        assert (sorted(one.paragraph.source) == sorted(two.paragraph.source)) == (one.kind != "plain")
        own = {*one.paragraph.sentences[one.sentence].source}
        assert not own & (cues(one.word, 0) | cues(one.word, 1))


def rule(example):
    """The sense, from the words: which place of the two is said, and not denied, of who acts on the word's thing."""
    sentences = [list(pair.source[:-1]) for pair in example.paragraph.sentences]
    people, who, told = [], [], {}
    for words in sentences:
        actor = next(word for word in words if word in NOUNS or word in ("he", "she"))
        if actor in ("he", "she"):
            (actor,) = {person for person in people if PEOPLE[person] == actor}
        if actor in PEOPLE and actor not in people:
            people.append(actor)
        who.append(actor)
    for actor, words in zip(who, sentences, strict=True):
        for sense in (0, 1):
            if cues(example.word, sense) & set(words):
                told[actor, sense] = "not" not in words
    own = who[example.sentence]
    (sense,) = [sense for sense in (0, 1) if told.get((own, sense))]
    return sense


def test_a_rule_over_the_paragraph_is_always_right(full):
    for example in everything(full):
        assert rule(example) == example.sense, example


def test_neither_the_nearest_nor_the_first_place_tells(full):
    for kind in ("negated", "bound"):
        right = Counter()
        chosen = [e for e in full.train if e.kind == kind]
        for example in chosen:
            places = []
            for number, pair in enumerate(example.paragraph.sentences):
                for sense in (0, 1):
                    if cues(example.word, sense) & set(pair.source):
                        places.append((number, sense))
            assert len(places) == 2
            nearest = sorted(places, key=lambda place: abs(place[0] - example.sentence))
            tied = len({abs(number - example.sentence) for number, _ in places}) == 1
            right["nearest"] += 0.5 if tied else nearest[0][1] == example.sense
            right["first"] += places[0][1] == example.sense
        for guess, count in right.items():
            assert 0.44 <= count / len(chosen) <= 0.56, (kind, guess)


def test_only_the_words_asked_for():
    found = ambiguous_words(train=120, valid=0, test=0, words=("bow", "bank")).train
    assert {e.word for e in found} == {"bow", "bank"}
    with pytest.raises(ValueError, match="words: expected"):
        ambiguous_words(train=0, valid=0, test=0, words=("bow", "king"))
