"""Sentences in which French must choose il or elle by what "it" refers to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from attn_book.corpus.clauses import write
from attn_book.corpus.lexicon import ADJECTIVES, NOUNS, Noun
from attn_book.corpus.phrase_sampler import adjectives_of, nouns_of
from attn_book.corpus.tree import Clause, Joined, NounPhrase, Pronoun, Sentence
from attn_book.corpus.verbs import BE, TRANSITIVE
from attn_core.data.pairs import Pair


@dataclass(frozen=True)
class Frame:
    """A verb with its objects, and reasons that can only be the subject's or only the object's."""

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


LOOKS = ("black", "white", "grey", "young", "beautiful")  # none is a reason of an object
FRAMES = _frames()
VERBS = {verb.english: verb for verb in TRANSITIVE}


def pronoun_pairs(random: Random) -> Iterator[Pair]:
    """Pairs by twos: the same main clause, once with "it" for its subject and once for its object.

    Subject and object differ in gender, so of each two one has il and the other elle.
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
