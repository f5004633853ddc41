"""Ambiguous words: their own sentence says nothing, the paragraph all, and where that can be, no bag of words."""

import os
import subprocess
import sys
from collections import Counter

import pytest
import torch

from attn_book.corpus import KINDS, NOUNS, SENSES, ambiguous, ambiguous_words
from attn_book.corpus.ambiguous import SURROUNDINGS
from attn_book.corpus.morphology import elides
from attn_book.data import Vocab

HASH = """
import zlib
from attn_book.corpus import ambiguous_words
c = ambiguous_words(train=120, valid=12, test=12, seed=7)
text = repr([[(e.word, e.sense, e.position, e.deciding, e.kind, e.paragraph.source, e.paragraph.target)
              for e in part] for part in (c.train, c.valid, c.test)])
print(zlib.crc32(text.encode()))
"""
RECORDED = 3280892940
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


def logistic_accuracy(train, test, words):
    """Accuracy on `test` of a logistic regression from the bag `words(example)` to one of the French nouns.

    It knows which two nouns the English word may be, and picks the likelier of them.
    """
    vocab = Vocab([words(example) for example in train])
    classes = {sense.noun: number for number, sense in enumerate(s for pair in SENSES.values() for s in pair)}

    def bags(examples):
        rows = torch.zeros(len(examples), len(vocab))
        for row, example in zip(rows, examples, strict=True):
            for number in vocab.encode(words(example)):
                row[number] += 1
        pairs = torch.tensor([[classes[sense.noun] for sense in SENSES[example.word]] for example in examples])
        return rows, pairs, torch.tensor([example.sense for example in examples])

    rows, pairs, senses = bags(train)
    layer = torch.nn.Linear(len(vocab), len(classes))
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.03)
    for _ in range(100):
        loss = torch.nn.functional.cross_entropy(layer(rows).gather(1, pairs), senses)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        rows, pairs, senses = bags(test)
        return (layer(rows).gather(1, pairs).argmax(1) == senses).double().mean().item()


def test_the_table_of_senses():
    assert len(SENSES) >= 25
    french = [sense.noun.french[0] for pair in SENSES.values() for sense in pair]
    assert len(set(french)) == len(french)
    places = [noun.english[0] for kinds in SURROUNDINGS.values() for _, noun in kinds]
    assert len(set(places)) == len(places) >= 50
    assert not set(places) & set(SENSES) and not set(SENSES) & set(NOUNS)
    for word, (one, two) in SENSES.items():
        assert one.places is not two.places and one.noun.english[0] == two.noun.english[0] == word
    for name, kinds in SURROUNDINGS.items():
        assert len(kinds) >= 3 and any(sense.places is kinds for pair in SENSES.values() for sense in pair), name


def test_sizes_kinds_and_balance(full):
    assert [len(part) for part in (full.train, full.valid, full.test)] == [3_600, 300, 900]
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


def test_its_own_sentence_says_nothing(full):
    accuracy = logistic_accuracy(full.train, full.test, lambda e: e.paragraph.sentences[e.sentence].source)
    print(f"the word's own sentence as a bag of words: {accuracy:.3f}")
    assert 0.47 <= accuracy <= 0.53
    for example in everything(full):
        own = set(example.paragraph.sentences[example.sentence].source)
        assert not own & (cues(example.word, 0) | cues(example.word, 1))


def test_what_the_paragraph_as_a_bag_of_words_says(full):
    """All where only one sense's place is there; nothing where both are, for then the twins have the same words."""
    for one, two in twins(full):
        if one.kind != "plain":
            assert sorted(one.paragraph.source) == sorted(two.paragraph.source)
    found = {}
    for kind in KINDS:
        train, test = ([e for e in part if e.kind == kind] for part in (full.train, full.test))
        found[kind] = logistic_accuracy(train, test, lambda e: e.paragraph.source)
    print("the paragraph as a bag of words:", {kind: round(accuracy, 3) for kind, accuracy in found.items()})
    assert found["plain"] >= 0.9
    assert 0.47 <= found["negated"] <= 0.53 and 0.47 <= found["bound"] <= 0.53


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


def bound_features(example):
    """All that a bound paragraph shows of its two places, if nobody looks at who sees the thing.

    Of the two sentences with a place, the earlier one first: where it stands, how long it is, what its subject is, and
    how often this subject comes in other sentences than the word's.
    """
    sentences = [pair.source for pair in example.paragraph.sentences]
    both = [
        (number, sense)
        for number, words in enumerate(sentences)
        for sense in (0, 1)
        if cues(example.word, sense) & set(words)
    ]
    found = {"pronoun sees" if sentences[example.sentence][0] in ("he", "she") else "noun sees"}
    for rank, (number, _) in enumerate(both):
        subject = next((word for word in sentences[number] if word in NOUNS or word in ("he", "she")), "")
        kind = "person" if subject in PEOPLE else "animal" if subject in NOUNS else "pronoun"
        others = sum(subject in words for i, words in enumerate(sentences) if i not in (number, example.sentence))
        found |= {
            f"{rank} {kind}",
            f"{rank} of {len(sentences[number])} words",
            f"{rank} is {subject}",
            f"{rank} {others} more",
            f"{rank} {number} of {len(sentences)}",
            f"{rank} {'before' if number < example.sentence else 'after'}",
        }
    right = next(rank for rank, (_, sense) in enumerate(both) if sense == example.sense)
    return sorted(found), right


def test_without_its_subject_the_words_sentence_leaves_a_bound_sense_open(full):
    """The two places' sentences differ in nothing that tells which of them belongs to the one who sees the thing."""
    more = ambiguous_words(train=24_000, valid=0, test=0).train
    examples = [e for e in (*more, *everything(full)) if e.kind == "bound"]
    rows = [bound_features(e) for e in examples[::2]]  # the other twin has the same features, and the same answer
    vocab = Vocab([features for features, _ in rows])
    bags = torch.zeros(len(rows), len(vocab))
    for row, (features, _) in zip(bags, rows, strict=True):
        row[vocab.encode(features)] = 1
    right = torch.tensor([float(answer) for _, answer in rows])
    half = len(rows) // 2
    mean = bags[:half].mean(0)
    ridge = torch.cat((bags[:half] - mean, 10 * torch.eye(len(vocab))))
    weights = torch.linalg.lstsq(ridge, torch.cat((right[:half] - 0.5, torch.zeros(len(vocab))))).solution
    found = (((bags[half:] - mean) @ weights > 0) == right[half:].bool()).double().mean().item()
    print(f"a rule over the shape of a bound paragraph: {found:.3f}")
    assert abs(found - 0.5) < 0.03


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


def test_other_places_tell_other_words(full):
    """Beside the places of its own two senses, most paragraphs have one that tells a sense of another word."""
    places = {noun.english[0] for kinds in SURROUNDINGS.values() for _, noun in kinds}
    for kind, least in (("plain", 1.0), ("negated", 0.4), ("bound", 0.4)):
        chosen = [e for e in full.train if e.kind == kind]
        have = [bool(set(e.paragraph.source) & places - cues(e.word, 0) - cues(e.word, 1)) for e in chosen]
        assert sum(have) / len(have) >= least


def test_no_paragraph_twice(full, monkeypatch):
    sources = [example.paragraph.source for example in everything(full)]
    assert len(set(sources)) == len(sources)
    drawn = list(zip(full.train[:8:2], full.train[1:8:2], strict=True))
    monkeypatch.setattr(ambiguous, "_twins", lambda random, kind, words: random.choice(drawn))
    parts = ambiguous_words(train=4, valid=2, test=2)
    assert {e.paragraph.source for e in (*parts.train, *parts.valid, *parts.test)} == set(sources[:8])


def test_surface_of_the_french(full):
    for example in everything(full):
        words = example.paragraph.target
        for word, after in zip(words, words[1:], strict=False):
            if word in ("le", "la", "de", "ne", "ce"):
                assert not elides(after), example
            if word.endswith("'") or word == "cet":
                assert elides(after), example
            assert (word, after) not in {("de", "le"), ("à", "le")}, example
        for pair in example.paragraph.sentences:
            assert {target for _, target in pair.links} == set(range(len(pair.target)))


def test_a_smaller_part_begins_a_larger_one(full):
    small = ambiguous_words(train=24, valid=12, test=0)
    assert small.train == full.train[:24] and small.test == ()
    assert ambiguous_words(train=24, valid=24, test=0).valid[:12] == small.valid
    assert ambiguous_words(train=24, valid=0, test=0, seed=1).train != small.train


def test_only_the_words_asked_for():
    found = ambiguous_words(train=120, valid=0, test=0, words=("bow", "bank")).train
    assert {e.word for e in found} == {"bow", "bank"}
    with pytest.raises(ValueError, match="words: expected keys of SENSES, got 'king'"):
        ambiguous_words(train=0, valid=0, test=0, words=("bow", "king"))


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_same_on_every_machine(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", HASH], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) == RECORDED


@pytest.mark.parametrize("wrong", [{"train": 3}, {"valid": -2}, {"test": 2.0}, {"seed": True}])
def test_wrong_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected an "):
        ambiguous_words(**{"train": 0, "valid": 0, "test": 0, **wrong})
