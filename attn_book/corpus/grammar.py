"""The corpus: English sentences with their French translation and true alignment, from a grammar of our own.

The words are in ``lexicon``, spelling in ``morphology``, the trees of sentences in ``trees``; ``clauses`` writes a tree
in both languages, and ``sampler`` draws trees at random.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from attn_book.corpus.clauses import write
from attn_book.corpus.lexicon import ADJECTIVES, BE, NOUNS, VERBS, Noun, adjectives_of, nouns_of
from attn_book.corpus.sampler import HELD_STRUCTURES, Sampler
from attn_book.corpus.trees import Clause, Joined, NounPhrase, Pronoun, Sentence, labels
from attn_book.data.pairs import Corpus, Pair
from attn_core.contract import check_integer

EXAMPLE = write(
    Sentence(
        Clause(
            NounPhrase("the", NOUNS["cat"], adjectives=(ADJECTIVES["black"],)),
            VERBS["drink"],
            NounPhrase("the", NOUNS["soup"], adjectives=(ADJECTIVES["hot"],)),
            negation="not",
        )
    ),
    structure="negation",
)
"""The sentence that the book carries from chapter to chapter; in no part of any corpus."""


@dataclass(frozen=True)
class GrammarCorpus(Corpus):
    """English to French pairs, disjoint between parts; ``corpus`` explains the parts beyond train, valid and test."""

    structures: tuple[Pair, ...]
    pronouns: tuple[Pair, ...]


def stream(part: str, seed: int) -> Random:
    """The random numbers of one part: the same on every machine, and independent of the other parts."""
    return Random(zlib.crc32(part.encode()) + (seed << 32))


def check_even(sizes: dict[str, int]) -> None:
    """Check the sizes of parts whose examples come in twins.

    Raises:
        ValueError: if one is not an even integer of at least 0.
    """
    for name, size in sizes.items():
        if type(size) is not int or size < 0 or size % 2:
            raise ValueError(f"{name}: expected an even integer of at least 0, got {size!r}")


def corpus(
    *,
    train: int = 24_000,
    valid: int = 1_000,
    test: int = 1_000,
    structures: int = 1_000,
    pronouns: int = 1_000,
    seed: int = 0,
) -> GrammarCorpus:
    """Generate a corpus with the given number of pairs in each part, the same for the same seed.

    ``structures`` holds known words in combinations that the first three parts never have
    (``sampler.HELD_STRUCTURES``). In ``pronouns``, French must choose il or elle by what "it" refers to. Each part has
    random numbers of its own: a part's size changes no part before it, nothing changes ``pronouns``, and a smaller part
    is the beginning of a larger one.

    Raises:
        ValueError: if a size or the seed is not an integer of at least 0.
    """
    sizes = {"train": train, "valid": valid, "test": test, "structures": structures, "pronouns": pronouns}
    for name, value in (*sizes.items(), ("seed", seed)):
        check_integer(name, value, at_least=0)
    seen = {EXAMPLE.source, EXAMPLE.target}
    regular = {part: _fresh(_regular(stream(part, seed)), sizes[part], seen) for part in ("train", "valid", "test")}
    return GrammarCorpus(
        **regular,
        structures=_fresh(_held(stream("structures", seed)), structures, seen),
        pronouns=_fresh(pronoun_pairs(stream("pronouns", seed)), pronouns, {EXAMPLE.source, EXAMPLE.target}),
    )


def _fresh(pairs: Iterator[Pair], size: int, seen: set[tuple[str, ...]]) -> tuple[Pair, ...]:
    """The first ``size`` pairs with no side in ``seen``, to which their sides are added."""
    fresh: list[Pair] = []
    while len(fresh) < size:
        pair = next(pairs)
        if pair.source not in seen and pair.target not in seen:
            seen.update((pair.source, pair.target))
            fresh.append(pair)
    return tuple(fresh)


def _regular(random: Random) -> Iterator[Pair]:
    sampler = Sampler(random)
    while True:
        sentence = sampler.sentence()
        structures = labels(sentence)
        if structures.isdisjoint(HELD_STRUCTURES):
            yield write(sentence, structure=" ".join(sorted(structures)))


def _held(random: Random) -> Iterator[Pair]:
    """The held-out combinations in turn, one to a sentence."""
    while True:
        for held in HELD_STRUCTURES:
            sampler = Sampler(random, held)
            while held not in (structures := labels(sentence := sampler.sentence())):
                pass
            yield write(sentence, structure=" ".join(sorted(structures)))


@dataclass(frozen=True)
class Frame:
    """A verb with its objects, and reasons that fit only the subject or only the object."""

    verb: str
    objects: tuple[str, ...]
    negated: bool
    of_subject: tuple[str, ...]
    of_object: tuple[str, ...]


# verb [not] | objects | reasons of the subject | reasons of the object
FRAMES_TABLE = """
drink | soup | hungry | hot delicious
drink | water milk tea | thirsty | cold delicious
drink not | water milk tea soup | sleepy tired ill | hot cold
eat | bread cheese meat jam apple pear cake egg tomato orange tart melon | hungry | delicious fresh
eat not | bread cheese meat apple pear cake egg tomato orange tart melon | ill sleepy thirsty sad | old
break | cup plate lamp clock mirror chair umbrella | afraid curious | old light
push | table chair desk box basket bag suitcase | curious | light empty
push not | table chair bed desk box basket bag suitcase | tired lazy ill sleepy afraid | heavy full
find not | key ball watch umbrella scarf bag box hat cup | lazy tired sleepy | small
steal | apple pear tomato orange melon bread cheese meat tart cake egg | hungry curious | delicious fresh
"""


def _frames() -> tuple[Frame, ...]:
    frames = []
    for row in FRAMES_TABLE.strip().splitlines():
        verb, *columns = row.split(" | ")
        objects, subject, thing = (tuple(column.split()) for column in columns)
        verb, _, negated = verb.partition(" ")
        frames.append(Frame(verb, objects, bool(negated), subject, thing))
    return tuple(frames)


LOOKS = ("black", "white", "grey", "young", "beautiful")
"""Adjectives for a subject; none of them is a reason that fits an object."""
FRAMES = _frames()


def pronoun_pairs(random: Random) -> Iterator[Pair]:
    """Twins with the same main clause, in which "it" refers first to its subject and then to its object.

    Subject and object differ in gender, so one twin has il and the other elle.
    """
    while True:
        frame = random.choice(FRAMES)
        thing = NOUNS[random.choice(frame.objects)]
        subject = random.choice([noun for noun in nouns_of(("animal",)) if noun.gender != thing.gender])
        determiners = (
            random.choice(("the", "the", "my", "this", "our")),
            random.choice(("the", "the", "this")),
        )
        adjectives = [a for a in adjectives_of(subject, False) if a.english in LOOKS]
        described = (random.choice(adjectives),) if random.random() < 0.5 else ()
        main = Clause(
            NounPhrase(determiners[0], subject, adjectives=described),
            VERBS[frame.verb],
            NounPhrase(determiners[1], thing),
            tense="past",
            negation="not" if frame.negated else "",
        )
        yield _because(main, subject, random.choice(frame.of_subject), "subject")
        yield _because(main, thing, random.choice(frame.of_object), "object")


def _because(main: Clause, referent: Noun, reason: str, role: str) -> Pair:
    predicate = ADJECTIVES.get(reason, reason)
    because = Clause(Pronoun("it", referent.gender), BE, predicate=predicate, tense="past")
    return write(Sentence(Joined(main, "because", because)), structure=f"it-{role}")
