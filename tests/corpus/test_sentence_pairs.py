"""Sentence pairs: no bag of words tells who did what, a rule that reads the words in order always does."""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest
import torch

from attn_book.corpus import NOUNS, VERBS, Paragraph, entailments, next_sentences, paragraph_corpus, sentence_pairs
from attn_book.corpus.lexicon import ADJECTIVES
from attn_book.corpus.sentence_pairs import FAMILIES, is_held
from attn_book.data import Pair, Vocab

HASH = """
import zlib
from attn_book.corpus import entailments, next_sentences, paragraph_corpus
c = entailments(train=160, valid=16, test=16, combinations=64, seed=7)
text = repr([[(e.premise.source, e.premise.target, e.hypothesis.source, e.hypothesis.target, e.follows, e.family,
               sorted(e.combinations)) for e in part] for part in (c.train, c.valid, c.test, c.combinations)])
n = next_sentences(paragraph_corpus(train=60, valid=0, test=0).train, seed=7)
text += repr([(len(e.first), [pair.source for pair in e.second], e.follows) for e in n])
print(zlib.crc32(text.encode()))
"""
RECORDED = 1671367116
PARTS = ("train", "valid", "test", "combinations")


@pytest.fixture(scope="module")
def full():
    return entailments(train=1_600, valid=160, test=480, combinations=480)


@pytest.fixture(scope="module")
def paragraphs():
    return paragraph_corpus(train=2_000, valid=0, test=600)


def everything(full):
    return [example for part in PARTS for example in getattr(full, part)]


def logistic_accuracy(train, test):
    """Accuracy on `test` of logistic regression fitted to `train`; each holds (groups of words, label)."""
    groups = range(len(train[0][0]))
    vocabs = [Vocab([tuple(words[g]) or ("nothing",) for words, _ in train]) for g in groups]

    def tensors(examples):
        rows = torch.zeros(len(examples), sum(len(vocab) for vocab in vocabs))
        for row, (words, _) in zip(rows, examples, strict=True):
            start = 0
            for vocab, group in zip(vocabs, words, strict=True):
                for number in vocab.encode(tuple(group)) if group else ():
                    row[start + number] += 1
                start += len(vocab)
        return rows, torch.tensor([float(label) for _, label in examples])

    x, y = tensors(train)
    layer = torch.nn.Linear(x.shape[1], 1)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05, weight_decay=1e-4)
    for _ in range(150):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(layer(x).squeeze(-1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        x, y = tensors(test)
        return ((layer(x).squeeze(-1) > 0) == (y > 0)).double().mean().item()


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


def test_what_simple_guesses_reach_for_the_next_sentence(paragraphs):
    """Bags of words alone nothing, their overlap three quarters; what the paragraph's story holds, nearly all."""
    train, test = next_sentences(paragraphs.train), next_sentences(paragraphs.test)

    def bags(example):
        first, second = ([word for pair in part for word in pair.source] for part in (example.first, example.second))
        return (first, second), example.follows

    def overlap(example):
        (first, second), follows = bags(example)
        return ([word for word in second if word in first],), follows

    bag = logistic_accuracy([bags(e) for e in train], [bags(e) for e in test])
    shared = logistic_accuracy([overlap(e) for e in train], [overlap(e) for e in test])
    story = sum((e.second[0].structure == e.first[0].structure) == e.follows for e in test) / len(test)
    print(f"next sentence: bag {bag:.3f}, overlap {shared:.3f}, same story {story:.3f}")
    assert 0.44 <= bag <= 0.56
    assert 0.72 <= shared <= 0.86
    assert story >= 0.94


def test_wrong_paragraphs_are_refused(paragraphs):
    pair = Pair(("a",), ("b",))
    short, twice = Paragraph((pair,)), Paragraph((pair, pair))
    for wrong, message in (
        ((), "two or more"),
        ([short, short], "two sentences or more"),
        ([1, 2], "two sentences or more"),
        ([twice] * 4, "some that differ"),
    ):
        with pytest.raises(ValueError, match=f"paragraphs: expected .*{message}"):
            next_sentences(wrong)
    with pytest.raises(ValueError, match="seed: expected"):
        next_sentences(paragraphs.test, seed=-1)


# does B follow from A

DESCRIBING = {adjective.english for adjective in ADJECTIVES.values()}
DECRIVANT = {form: a.english for a in ADJECTIVES.values() for g in "mf" for form in (a.agreed(g, False), a.liaison)}
BASE = {form: verb.english for verb in VERBS.values() for form in (verb.third, verb.past, verb.english)}
GENS = {noun.french[0]: name for name, noun in NOUNS.items() if not noun.classes.isdisjoint(("person", "animal"))}
FAIRE = {form: verb.english for verb in VERBS.values() for form in (verb.present[1], verb.participle)}


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


def french_rule(example):
    """The same from the French words alone: who comes first, what stands beside whom."""
    said, asked = list(example.premise.target), example.hypothesis.target
    said = said[said.index(",") + 1 :] if "," in said else said
    first, second = (i for i, word in enumerate(said) if word in GENS)
    who = next(i for i, word in enumerate(asked) if word in GENS)
    is_first, yes = asked[who] == said[first], "pas" not in asked
    if example.family in ("give", "find"):
        return (not is_first) == yes
    if example.family == "steal":
        return is_first == yes
    if example.family == "follow":
        return (is_first == ("derrière" in asked)) == yes
    if example.family == "attribute":
        (what,) = [DECRIVANT[word] for word in asked if word in DECRIVANT]
        at = first if is_first else second
        return (what in [DECRIVANT.get(said[i]) for i in (at - 1, at + 1)]) == yes
    link = next(i for i, word in enumerate(said) if word in ("et", "mais", "pendant"))
    clause = said[:link] if is_first else said[link + 1 : -1]
    if example.family == "activity":
        done = [[FAIRE[word] for word in words if word in FAIRE] for words in (clause, asked)]
    else:
        done = [
            words[max(words.index(verb) for verb in ("est", "était", "porte", "porté") if verb in words) + 1 :]
            for words in (clause, [word for word in asked if word not in ("pas", ".")])
        ]
    return (done[0] == done[1]) == yes


def test_sizes_twins_and_balance(full):
    assert [len(getattr(full, part)) for part in PARTS] == [1_600, 160, 480, 480]
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


@pytest.mark.parametrize("side", ["source", "target"])
def test_the_same_words_in_both_classes(full, side):
    for part in PARTS:
        examples = getattr(full, part)
        for one, two in zip(examples[::2], examples[1::2], strict=True):
            assert sorted(getattr(one.premise, side)) == sorted(getattr(two.premise, side))


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_bag_of_words_is_at_chance(full, side):
    def bags(example):
        premise, hypothesis = getattr(example.premise, side), getattr(example.hypothesis, side)
        return (premise, hypothesis, [word for word in hypothesis if word in premise]), example.follows

    for part in ("test", "combinations"):
        accuracy = logistic_accuracy([bags(e) for e in full.train], [bags(e) for e in getattr(full, part)])
        print(f"entailment, {part}, {side}: bag of words {accuracy:.3f}")
        assert 0.47 <= accuracy <= 0.53


@pytest.mark.parametrize("rule", [english_rule, french_rule])
def test_a_rule_over_words_in_order_is_always_right(full, rule):
    for example in everything(full):
        assert rule(example) == example.follows, (rule(example), example)


def test_no_premise_has_the_words_of_another_but_its_twin(full, monkeypatch):
    for side in ("source", "target"):
        premises = [getattr(example.premise, side) for example in everything(full)]
        assert len(set(premises)) == len(premises)
        bags = Counter(tuple(sorted(words)) for words in premises)
        assert set(bags.values()) == {2}
    drawn = list(zip(full.train[:8:2], full.train[1:8:2], strict=True))
    monkeypatch.setattr(sentence_pairs, "_twins", lambda random, family, *, held: random.choice(drawn))
    parts = entailments(train=4, valid=2, test=2, combinations=0)
    assert {e.premise for e in everything(parts)} == {e.premise for e in full.train[:8]}


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


def test_paragraphs_have_its_words(full, paragraphs):
    known = {word for part in (paragraphs.train, paragraphs.test) for paragraph in part for word in paragraph.source}
    assert {word for e in everything(full) for pair in (e.premise, e.hypothesis) for word in pair.source} <= known


def test_a_smaller_part_begins_a_larger_one(full):
    small = entailments(train=32, valid=16, test=0, combinations=0)
    assert small.train == full.train[:32] and small.test == ()
    assert entailments(train=32, valid=32, test=0, combinations=0).valid[:16] == small.valid
    assert entailments(train=32, valid=0, test=0, combinations=0, seed=1).train != small.train


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_same_on_every_machine(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", HASH], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) == RECORDED


@pytest.mark.parametrize("wrong", [{"train": -2}, {"valid": 3}, {"test": 2.0}, {"combinations": True}, {"seed": -1}])
def test_wrong_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected an "):
        entailments(**{"train": 0, "valid": 0, "test": 0, "combinations": 0, **wrong})
