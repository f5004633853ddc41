"""Sentences in which French must choose il or elle by what "it" refers to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from attn_core.data.clauses import write
from attn_core.data.lexicon import ADJECTIVES, NOUNS, Noun
from attn_core.data.pairs import Pair
from attn_core.data.sampler import adjectives_of, nouns_of
from attn_core.data.tree import Clause, Joined, NounPhrase, Pronoun, Sentence
from attn_core.data.verbs import BE, TRANSITIVE


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
drink | water milk coffee tea juice soup | thirsty hungry | cold sweet delicious
drink not | water milk coffee tea juice soup | sleepy tired ill | hot cold
eat | bread cheese meat rice apple pear cake egg carrot tomato tart melon | hungry | delicious fresh
eat not | bread cheese meat rice apple pear cake egg carrot tomato tart melon | ill sleepy thirsty | old
break | cup plate lamp toy clock mirror guitar bottle chair | afraid hungry curious | old light
push | table chair bench box basket bag suitcase car | curious hungry strong | light empty
push not | table chair bench box basket bag suitcase truck car | tired lazy ill sleepy afraid | heavy full
find not | key ring toy ball umbrella scarf bag box hat | lazy tired sleepy | small
steal | apple pear tomato orange strawberry melon | hungry curious | sweet red delicious
"""


def _frames() -> tuple[Frame, ...]:
    frames = []
    for row in FRAMES_TABLE.strip().splitlines():
        verb, *columns = row.split(" | ")
        objects, subject, thing = (tuple(column.split()) for column in columns)
        verb, _, negated = verb.partition(" ")
        frames.append(Frame(verb, objects, bool(negated), subject, thing))
    return tuple(frames)


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
        determiners = random.choice(("the", "the", "my", "this", "our")), random.choice(("the", "the", "this"))
        adjectives = [a for a in adjectives_of(subject, False) if a.english in ("black", "white", "old", "young", "small", "big", "beautiful", "grey")]
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
