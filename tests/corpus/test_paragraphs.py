"""Paragraphs: as many as asked for, none twice, who is meant by a pronoun, one tense, French that agrees."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from attn_book.corpus import NOUNS, VERBS, Paragraph, paragraph_corpus, paragraphs
from attn_book.corpus.morphology import elides
from attn_book.corpus.paragraphs import STORIES
from attn_book.data import Pair

HASH = """
import zlib
from attn_book.corpus import paragraph_corpus
c = paragraph_corpus(train=200, valid=20, test=20, seed=7)
text = repr([[(p.cast, p.setting, p.story, [(s.source, s.target, sorted(s.links)) for s in p.sentences]) for p in part]
             for part in (c.train, c.valid, c.test)])
print(zlib.crc32(text.encode()))
"""
RECORDED = 1700179802
MEANT = {"he": "he", "him": "he", "she": "she", "her": "she", "it": "it"}


def gender(noun):
    """The pronoun that English has for a noun of the lexicon."""
    return "it" if "person" not in NOUNS[noun].classes else "she" if NOUNS[noun].gender == "f" else "he"


@pytest.fixture(scope="module")
def full():
    return paragraph_corpus(train=3_000, valid=300, test=300)


def everything(full):
    return (*full.train, *full.valid, *full.test)


def test_sizes_and_lengths(full):
    assert [len(part) for part in (full.train, full.valid, full.test)] == [3_000, 300, 300]
    lengths = Counter(len(paragraph.sentences) for paragraph in full.train)
    assert set(lengths) == {3, 4, 5, 6} and min(lengths.values()) > 600
    assert max(len(paragraph.source) for paragraph in full.train) <= 70


@pytest.mark.parametrize("side", ["source", "target"])
def test_no_paragraph_twice(full, side):
    texts = [getattr(paragraph, side) for paragraph in everything(full)]
    assert len(set(texts)) == len(texts)


def test_what_was_told_before_is_not_told_again(full, monkeypatch):
    told = full.train[:12]
    monkeypatch.setattr(paragraphs, "_tell", lambda random: random.choice(told))
    parts = paragraph_corpus(train=6, valid=3, test=3)
    assert {p.source for p in (*parts.train, *parts.valid, *parts.test)} == {p.source for p in told}


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


def test_every_french_word_has_its_source(full):
    for paragraph in full.train:
        for pair in paragraph.sentences:
            assert {target for _, target in pair.links} == set(range(len(pair.target))), pair


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


def test_surface_of_the_french(full):
    masculine, feminine = ({n.french[0] for n in NOUNS.values() if n.gender == g} for g in "mf")
    for paragraph in full.train:
        for word, after in zip(paragraph.target, paragraph.target[1:], strict=False):
            spot = (word, after, " ".join(paragraph.target))
            if word in ("le", "la", "de", "ne", "que", "ce", "ma"):
                assert not elides(after), spot
            if word.endswith("'"):
                assert elides(after), spot
            assert (word, after) not in {("de", "le"), ("à", "le")}, spot
            if after in masculine - feminine - {"lit"}:
                assert word not in ("une", "cette", "ma", "petite"), spot
            if after in feminine - masculine - {"montre", "porte"}:
                assert word not in ("un", "ce", "cet", "mon", "du", "au") or elides(after), spot
        count = Counter(paragraph.target)
        assert count["pas"] == count["ne"] + count["n'"] == paragraph.source.count("not")


def test_sentences_say_what_happened_before(full):
    """ "x has it now" comes right after x has come to it."""
    gains = ("finds", "found", "find", "buys", "bought", "steals", "stole", "gives", "gave", "sends", "sent")
    seen = 0
    for paragraph in full.train:
        for before, pair in zip(paragraph.sentences, paragraph.sentences[1:], strict=False):
            if "has" in pair.source:
                assert set(gains) & set(before.source), paragraph
                seen += 1
    assert seen > 300


def test_it_has_the_words_of_the_lexicon(full):
    words = {word for paragraph in full.train for word in paragraph.source}
    assert {english for english in NOUNS if "opening" not in NOUNS[english].classes} <= words
    assert {"not", "but", "while", "and", "'s", "has", "have", "now", "they"} <= words


def test_a_smaller_part_begins_a_larger_one(full):
    small = paragraph_corpus(train=50, valid=10, test=0)
    assert small.train == full.train[:50] and small.test == ()
    assert paragraph_corpus(train=50, valid=20, test=0).valid[:10] == small.valid
    assert not set(small.train) & set(paragraph_corpus(train=50, valid=0, test=0, seed=1).train)


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_same_on_every_machine(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", HASH], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) == RECORDED


@pytest.mark.parametrize("wrong", [{"train": -1}, {"valid": 1.0}, {"test": True}, {"seed": "1"}])
def test_wrong_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected an integer of at least 0, got"):
        paragraph_corpus(**{"train": 0, "valid": 0, "test": 0, **wrong})


@pytest.mark.parametrize("wrong", [(), [Pair(("a",), ("b",))], ("a",)])
def test_a_paragraph_is_made_of_pairs(wrong):
    with pytest.raises(ValueError, match="sentences: expected"):
        Paragraph(wrong)
