"""The corpus as a whole: held structures, pronouns that need their referent, a diagonal that errs, the example."""

from collections import Counter

import pytest

from attn_book.corpus import EXAMPLE, NOUNS, corpus
from attn_book.corpus.lexicon import HELD_DESCRIPTIONS
from attn_book.corpus.sampler import HELD_STRUCTURES

PARTS = ("train", "valid", "test", "structures", "pronouns")


@pytest.fixture(scope="module")
def full():
    return corpus()


def regular(full):
    return [*full.train, *full.valid, *full.test]


def singular(word):
    return next((one for one, noun in NOUNS.items() if word in noun.english), None)


@pytest.mark.parametrize("side", ["source", "target"])
def test_every_word_of_the_other_parts_is_in_train(full, side):
    known = {word for pair in full.train for word in getattr(pair, side)}
    assert len(known) >= 300
    assert set(getattr(EXAMPLE, side)) <= known
    for part in PARTS[1:]:
        assert {word for pair in getattr(full, part) for word in getattr(pair, side)} <= known, part


def test_structures_are_held_out(full):
    for pair in regular(full):
        assert set(pair.structure.split()).isdisjoint(HELD_STRUCTURES)
    for pair in full.structures:
        assert not set(pair.structure.split()).isdisjoint(HELD_STRUCTURES)
    counts = Counter(label for pair in full.structures for label in pair.structure.split())
    assert all(counts[held] >= 200 for held in HELD_STRUCTURES)


def test_held_pairs_of_words_are_held_out_by_their_words(full):
    """Without the labels: no adjective stands before a noun that it is held from."""

    def held(pair):
        nouns = [singular(word) for word in pair.source]
        return any(held in HELD_DESCRIPTIONS for held in zip(pair.source, nouns[1:], strict=False))

    assert not any(map(held, regular(full))) and sum(map(held, full.structures)) >= 50


def test_pronouns_are_balanced_and_need_the_referent(full):
    frames = Counter()
    answers = Counter()
    for pair in full.pronouns:
        it = pair.source.index("it")
        (target,) = [pair.target[t] for s, t in pair.links if s == it]
        answers[target, pair.structure] += 1
        frames[pair.source[: pair.source.index("because")]] += 1
    assert {key[0] for key in answers} == {"il", "elle"}
    both = {pronoun: sum(n for key, n in answers.items() if key[0] == pronoun) for pronoun in ("il", "elle")}
    assert abs(both["il"] - both["elle"]) <= 100
    assert abs(sum(n for key, n in answers.items() if key[1] == "it-subject") - 500) <= 50
    assert not any(
        "it" in pair.source[pair.source.index("because") :] for pair in full.train if "because" in pair.source
    )


def test_a_diagonal_guess_errs(full):
    wrong = total = 0
    for pair in full.test:
        last_source, last_target = len(pair.source) - 1, len(pair.target) - 1
        for j in range(len(pair.target)):
            sources = {s for s, t in pair.links if t == j}
            if sources:
                total += 1
                wrong += round(j * last_source / last_target) not in sources
    assert wrong / total >= 0.30


def test_the_example():
    assert " ".join(EXAMPLE.source) == "the black cat does not drink the hot soup ."
    assert " ".join(EXAMPLE.target) == "le chat noir ne boit pas la soupe chaude ."
    assert EXAMPLE.links == {(0, 0), (2, 1), (1, 2), (4, 3), (5, 4), (4, 5), (6, 6), (8, 7), (7, 8), (9, 9)}
