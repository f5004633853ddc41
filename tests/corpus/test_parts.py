"""What all corpora of the grammar promise: their parts, and French that agrees, word for word with its English."""

import os
import subprocess
import sys
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import pytest

from attn_book.corpus import NOUNS, Paragraph, ambiguous_words, corpus, entailments, paragraph_corpus
from attn_book.corpus.lexicon import ADJECTIVES
from attn_book.corpus.morphology import elides, french_plural

HOMOGRAPHS = {"avions", "souris", "marché", "lit", "porte", "portes", "montre", "montres"}
"""Nouns that are also verb forms, so that their spelling alone does not tell: "il la montre", "il a marché"."""


@dataclass(frozen=True)
class Kind:
    make: object
    sizes: dict
    recorded: int
    told: object = field(default=lambda one: one)  # of an example, the pair or paragraph that no other part has
    twice: int = 1  # how many examples share their words: twins do
    more: tuple = ()

    @property
    def parts(self):
        return ("train", "valid", "test", *self.more)


def sizes(train, valid, test):
    return {"train": train, "valid": valid, "test": test}


KINDS = {
    "corpus": Kind(corpus, sizes(24_000, 1_000, 1_000), 489235417, more=("structures", "pronouns")),
    "paragraphs": Kind(paragraph_corpus, sizes(3_000, 300, 300), 1184076350),
    "ambiguous": Kind(ambiguous_words, sizes(3_600, 300, 900), 4097448175, told=lambda one: one.paragraph),
    "entailments": Kind(
        entailments, sizes(1_600, 160, 480), 4093397588, told=lambda one: one.premise, twice=2, more=("combinations",)
    ),
}
each = pytest.mark.parametrize("name", KINDS)


@cache
def full(name):
    return KINDS[name].make(**KINDS[name].sizes)


def everything(name):
    return [KINDS[name].told(one) for part in KINDS[name].parts for one in getattr(full(name), part)]


def pairs(name):
    for one in everything(name):
        yield from one.sentences if isinstance(one, Paragraph) else (one,)


def checksum(name):
    """Of a small corpus, in an order that no hash decides."""
    small = {part: 40 for part in KINDS[name].parts}
    found = KINDS[name].make(**small | {"seed": 7})
    told = [KINDS[name].told(one) for part in small for one in getattr(found, part)]
    sentences = [pair for one in told for pair in (one.sentences if isinstance(one, Paragraph) else (one,))]
    return zlib.crc32(repr([(p.source, p.target, sorted(p.links)) for p in sentences]).encode())


@each
def test_parts_have_their_sizes_and_share_no_sentence(name):
    kind = KINDS[name]
    assert {part: len(getattr(full(name), part)) for part in kind.sizes} == kind.sizes
    for side in ("source", "target"):
        told = Counter(getattr(one, side) for one in everything(name))
        assert max(told.values()) == 1
        bags = Counter(tuple(sorted(words)) for words in told)
        assert kind.twice == 1 or set(bags.values()) == {kind.twice}


@each
def test_a_smaller_part_begins_a_larger_one_and_the_seed_decides(name):
    make = KINDS[name].make
    small = {part: 0 for part in KINDS[name].parts} | {"train": 32, "valid": 16}
    assert make(**small).train == full(name).train[:32] and make(**small).test == ()
    assert make(**small | {"valid": 8}).valid == make(**small).valid[:8]
    one, other = (set(map(KINDS[name].told, make(**small, seed=seed).train)) for seed in (0, 1))
    assert not one & other


def test_the_same_on_every_machine():
    """In a process whose strings have other hashes."""
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [str(kind.recorded) for kind in KINDS.values()]


@each
def test_every_french_word_has_its_sources_and_marks_go_with_marks(name):
    forms = {form: noun for noun in NOUNS.values() for form in noun.french}
    for pair in pairs(name):
        sources = [{pair.source[s] for s, t in pair.links if t == j} for j in range(len(pair.target))]
        for word, found in zip(pair.target, sources, strict=True):
            assert found, pair
            if {word, *found} & {".", "?", ","}:
                assert found == {word}, pair
            if word in forms and word not in HOMOGRAPHS:
                assert len(found) == 1 and (name == "ambiguous" or found <= set(forms[word].english)), pair


@each
def test_adjectives_agree_and_stand_where_french_puts_them(name):
    """Each before an English noun: on its side of the French noun, in the noun's gender and number."""
    nouns = {form: (noun, i) for noun in NOUNS.values() for i, form in enumerate(noun.english)}
    seen = Counter()
    for pair in pairs(name):
        for s, word in enumerate(pair.source):
            if word not in ADJECTIVES or pair.source[s + 1] not in nouns:
                continue
            adjective, (noun, plural) = ADJECTIVES[word], nouns[pair.source[s + 1]]
            ((at,), (t,)) = ([t for one, t in pair.links if one == place] for place in (s + 1, s))
            assert (t < at) == adjective.before, pair
            word = adjective.feminine if noun.gender == "f" else adjective.masculine
            if noun.english[0] == noun.english[1]:  # the number does not show in English
                continue
            if plural:
                word = french_plural(word)
            elif noun.gender == "m" and t == at - 1 and elides(pair.target[at]):
                word = adjective.liaison or word
            assert pair.target[t] == word, pair
            seen[noun.gender, bool(plural)] += 1
    assert len(seen) == 4 or name != "corpus", seen


@each
def test_french_is_spelled_as_it_must(name):
    """Elision, contraction, articles and a few adjectives before their noun, negation."""
    masculine, feminine = ({n.french[0] for n in NOUNS.values() if n.gender == g} - HOMOGRAPHS for g in "mf")
    plurals = {n.french[1] for n in NOUNS.values() if n.french[0] != n.french[1]} - HOMOGRAPHS
    wrong = [
        (masculine - feminine, {"la", "une", "cette", "ma", "sa", "petite", "vieille"}),
        (feminine - masculine, {"le", "un", "ce", "cet", "du", "au", "petit", "vieux"}),
        (plurals, {"le", "la", "l'", "un", "une", "ce", "cette", "mon", "ma", "du", "au"}),
    ]
    for pair in pairs(name):
        for word, after in zip(pair.target, pair.target[1:], strict=False):
            if word in ("le", "la", "de", "ne", "que", "je", "me", "ce", "ma", "sa"):
                assert not elides(after), pair
            if word.endswith("'") or word in ("bel", "vieil", "nouvel", "cet"):
                assert elides(after), pair
            assert (word, after) not in {("de", "le"), ("de", "les"), ("à", "le"), ("à", "les")}, pair
            assert not any(after in nouns and word in bad for nouns, bad in wrong), pair
            assert word != "qui" or after not in ("il", "elle", "ils", "elles", "je", "nous"), pair
        count = Counter(pair.target)
        assert count["pas"] + count["jamais"] == count["ne"] + count["n'"], pair
        assert count["pas"] == pair.source.count("not"), pair


@each
@pytest.mark.parametrize("wrong", [{"train": -2}, {"valid": 2.0}, {"test": True}, {"seed": "1"}])
def test_wrong_sizes_are_refused(name, wrong):
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: expected an "):
        KINDS[name].make(**{part: 0 for part in KINDS[name].parts} | wrong)


if __name__ == "__main__":
    print(*map(checksum, KINDS))
