"""Sentence pairs: twins have the same words and opposite answers, and a rule that reads the words in order is right."""

import re
from collections import Counter

import pytest

from attn_book.corpus import NOUNS, VERBS, entailments, next_sentences, paragraph_corpus
from attn_book.corpus.lexicon import ADJECTIVES
from attn_book.corpus.sentence_pairs import FAMILIES, is_held

PARTS = ("train", "valid", "test", "combinations")


@pytest.fixture(scope="module")
def full():
    return entailments(train=1_600, valid=160, test=480, combinations=480)


@pytest.fixture(scope="module")
def paragraphs():
    return paragraph_corpus(train=2_000, valid=0, test=600)


def everything(full):
    return [example for part in PARTS for example in getattr(full, part)]


# does B come next


def test_half_are_the_next_sentence(paragraphs):
    examples = next_sentences(paragraphs.train)
    assert sum(example.follows for example in examples) == 1_000
    for paragraph, example in zip(paragraphs.train, examples, strict=True):
        at = len(example.first)
        assert example.first == paragraph.sentences[:at] and 1 <= at < len(paragraph.sentences)
        if example.follows:
            assert example.second == paragraph.sentences[at:]
        else:
            for pair in paragraph.sentences:
                assert example.second[0].source != pair.source and example.second[0].target != pair.target
            others = [other for other in paragraphs.train if len(other.sentences) == len(paragraph.sentences)]
            assert any(other.sentences[at:] == example.second for other in others)
    again = next_sentences(paragraphs.train, seed=1)
    assert [e.follows for e in again] != [e.follows for e in examples]
    cuts = Counter(len(e.first) for e in examples)
    assert set(cuts) == {1, 2, 3, 4, 5}


# does B follow from A

DESCRIBING = {adjective.english for adjective in ADJECTIVES.values()}
BASE = {form: verb.english for verb in VERBS.values() for form in (verb.third, verb.past, verb.english)}
GENS = {noun.french[0]: name for name, noun in NOUNS.items() if not noun.classes.isdisjoint(("person", "animal"))}


def english_rule(example):
    """Whether the hypothesis follows, by regular expressions over the English words alone."""
    said = " ".join(example.premise.source).split(" , ")[-1]
    asked = " ".join(word for word in example.hypothesis.source if word not in ("not", "do", "does", "did"))
    plain = re.sub(" ".join(sorted(DESCRIBING)).replace(" ", " | ").join((r"(?: ", r" )")), " ", said)
    yes = "not" not in example.hypothesis.source
    if found := re.fullmatch(r"the (\w+) (?:ha[sv]e?) the (\w+)(?: now)? \.", asked):
        who, thing = found.groups()
        if match := re.fullmatch(rf"the \w+ (?:gives|gave|sends|sent) the {thing} to the (\w+) \.", plain):
            return (match[1] == who) == yes
        if match := re.fullmatch(rf"the (\w+) (?:steals|stole|finds|found) the \w+ 's {thing} \.", plain):
            return (match[1] == who) == yes
        match = re.fullmatch(rf"the \w+ (?:loses|lost) the {thing} and the (\w+) (?:finds|found) it \.", plain)
        return (match[1] == who) == yes
    if match := re.fullmatch(r"the (\w+) follow(?:s|ed) the (\w+) \.", plain):
        found = re.fullmatch(r"the (\w+) (?:is|was) (behind|in front of) the (\w+) \.", asked)
        assert {found[1], found[3]} == set(match.groups())
        return ((found[1] == match[1]) == (found[2] == "behind")) == yes
    if example.family == "attribute":
        match = re.fullmatch(r"the (\w+) (\w+) [a-z ]+ the (\w+) (\w+) \.", said)
        found = re.fullmatch(r"the (\w+) (?:is|was) (\w+) \.", asked)
        return ((found[2], found[1]) in ((match[1], match[2]), (match[3], match[4]))) == yes
    what = {}
    for clause in re.split(" and | but | while ", plain.removesuffix(" .")):
        _, who, verb, *rest = clause.split()
        what[who] = (BASE.get(verb, verb), *rest)
    _, who, verb, *rest = asked.removesuffix(" .").split()
    return (what[who] == (BASE.get(verb, verb), *rest)) == yes


def test_twins_and_balance(full):
    for part in PARTS:
        examples = getattr(full, part)
        for one, two in zip(examples[::2], examples[1::2], strict=True):
            assert (one.family, one.hypothesis) == (two.family, two.hypothesis)
            assert one.follows != two.follows and one.premise.source != two.premise.source
        for family in {example.family for example in examples}:
            answers = [example.follows for example in examples if example.family == family]
            assert sum(answers) * 2 == len(answers) == len(examples) // len(FAMILIES)
    first = Counter(example.follows for example in full.train[::2])
    assert 320 <= first[True] <= 480
    denied = sum("not" in example.hypothesis.source for example in full.train)
    assert 650 <= denied <= 950


def test_a_rule_over_words_in_order_is_always_right(full):
    for example in everything(full):
        assert english_rule(example) == example.follows, example


def test_combinations_are_held_out(full):
    """By the names in `combinations`, and by the words themselves: who is in a premise with which verb."""
    usual = {one for part in PARTS[:3] for example in getattr(full, part) for one in example.combinations}
    assert not any(is_held(*one) for one in usual)
    assert all(any(is_held(*one) for one in example.combinations) for example in full.combinations)

    def met(example):
        words = {BASE.get(word, word) for word in example.premise.source}
        people = words & set(GENS.values())
        what = words & {"give", "send", "steal", "find", "lose", "follow", "wear", "sleep"}
        return {(person, verb) for person in people for verb in what}

    trained = {one for part in PARTS[:3] for example in getattr(full, part) for one in met(example)}
    assert trained and not any(is_held(*one) for one in trained)
    asked = [e for e in full.combinations if e.family in ("give", "steal", "find", "follow", "wear")]
    assert all(met(example) - trained for example in asked)
    words = {word for example in full.train for word in example.premise.source}
    assert {noun for one in full.combinations for noun, _ in one.combinations} <= words
