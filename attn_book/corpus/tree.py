"""What a sentence is made of, before it is words: the trees that the grammar writes in both languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from attn_book.corpus.lexicon import Adjective, Noun
from attn_book.corpus.verbs import Verb


class Agreement(NamedTuple):
    """What verbs and adjectives agree with."""

    person: int
    plural: bool
    gender: str


@dataclass(frozen=True, eq=False, slots=True)
class NounPhrase:
    """A determiner, a noun and what describes it."""

    determiner: str
    noun: Noun
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    owner: NounPhrase | None = None
    place: Place | None = None
    relative: Relative | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Several:
    """Two noun phrases joined by "and"."""

    first: NounPhrase
    second: NounPhrase


@dataclass(frozen=True, eq=False, slots=True)
class Pronoun:
    """A personal pronoun, named by its English subject form; `gender` matters for "it" and "they"."""

    english: str
    gender: str = "m"


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A preposition and a noun phrase."""

    preposition: str
    noun_phrase: NounPhrase


@dataclass(frozen=True, eq=False, slots=True)
class Relative:
    """A relative clause: one without a subject ("that sleeps") or without an object ("that the cat sees")."""

    clause: Clause


Nominal = NounPhrase | Several | Pronoun

# subject: object, person, plural, gender where known, French subject, object, indirect object
PRONOUNS = {
    "i": ("me", 1, False, "", "je", "me", "me"),
    "he": ("him", 3, False, "m", "il", "le", "lui"),
    "she": ("her", 3, False, "f", "elle", "la", "lui"),
    "it": ("it", 3, False, "", "il", "le", "lui"),
    "we": ("us", 1, True, "", "nous", "nous", "nous"),
    "you": ("you", 2, True, "", "vous", "vous", "vous"),
    "they": ("them", 3, True, "", "ils", "les", "leur"),
}


def agreement(nominal: Nominal) -> Agreement:
    """Person, number and gender of a subject or an object."""
    if isinstance(nominal, NounPhrase):
        return Agreement(3, nominal.plural, nominal.noun.gender)
    if isinstance(nominal, Several):
        genders = {nominal.first.noun.gender, nominal.second.noun.gender}
        return Agreement(3, True, "f" if genders == {"f"} else "m")
    _, person, plural, gender, *_ = PRONOUNS[nominal.english]
    return Agreement(person, plural, gender or nominal.gender)


@dataclass(frozen=True, eq=False, slots=True)
class Clause:
    """A subject, a verb and what the verb takes.

    `tense` is "present", "past" (passé composé; être in the imparfait) or "future" (going to, aller).
    `negation` is "", "not" or "never". With the verb be, `predicate` is an adjective, one of `verbs.IDIOMS`
    or a place. In a relative clause the missing subject or object is None.
    """

    subject: Nominal | None
    verb: Verb
    object: Nominal | None = None
    recipient: NounPhrase | Pronoun | None = None
    predicate: Adjective | str | Place | None = None
    content: Clause | None = None
    tense: str = "present"
    negation: str = ""
    adverb: str = ""
    place: Place | None = None
    time: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Joined:
    """Two clauses and the conjunction between them; a second clause without a subject shares the first's."""

    first: Clause | Joined
    conjunction: str
    second: Clause


@dataclass(frozen=True, eq=False, slots=True)
class Sentence:
    """A statement or, with a single clause, a question; `opening` is a time or place put first."""

    body: Clause | Joined
    question: bool = False
    opening: str | Place = ""
