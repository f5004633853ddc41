"""What a sentence is made of before it is words: the trees that the grammar writes in both languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from attn_book.corpus.lexicon import HELD_DESCRIPTIONS, Adjective, Noun, Verb


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
    """A personal pronoun, named by its English subject form; ``gender`` matters for "it" and "they"."""

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


def pronoun_for(nominal: Nominal) -> Pronoun:
    """The subject pronoun that stands for a person or several: he, she or they."""
    _, plural, gender = agreement(nominal)
    return Pronoun("they" if plural else "she" if gender == "f" else "he", gender)


@dataclass(frozen=True, eq=False, slots=True)
class Clause:
    """A subject, a verb and what the verb takes.

    ``tense`` is "present", "past" (passé composé; être in the imparfait) or "future" (going to, aller).
    ``negation`` is "", "not" or "never". With the verb be, ``predicate`` is an adjective, one of ``lexicon.IDIOMS``
    or a place. In a relative clause, the missing subject or object is None.
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
    """Two clauses and the conjunction between them; a second clause without a subject shares that of the first."""

    first: Clause | Joined
    conjunction: str
    second: Clause


@dataclass(frozen=True, eq=False, slots=True)
class Sentence:
    """A statement or, with a single clause, a question; ``opening`` is a time or place put first."""

    body: Clause | Joined
    question: bool = False
    opening: str | Place = ""


def labels(sentence: Sentence) -> frozenset[str]:
    """The names of the structures in a sentence, for example "negation"; some are in ``sampler.HELD_STRUCTURES``."""
    names: set[str] = set()
    if sentence.question:
        names.add("question")
    if isinstance(sentence.opening, Place):
        _phrase(sentence.opening.noun_phrase, names)
    body = sentence.body
    while isinstance(body, Joined):
        names.add("joined")
        _clause(body.second, names)
        body = body.first
    _clause(body, names, question=sentence.question)
    return frozenset(names)


def _clause(clause: Clause, names: set[str], *, question: bool = False, relative: bool = False) -> None:
    if clause.negation:
        names.add("negated-relative" if relative else "negation")
    if isinstance(clause.object, Pronoun) or isinstance(clause.recipient, Pronoun):
        names.add("question-with-pronoun" if question else "pronoun")
    if clause.tense == "future" and isinstance(clause.recipient, Pronoun):
        names.add("future-with-recipient-pronoun")
    if isinstance(clause.predicate, Adjective) and isinstance(clause.subject, NounPhrase):
        _pair(clause.predicate, clause.subject.noun, names)
    for nominal in (clause.subject, clause.object, clause.recipient):
        _phrase(nominal, names)
    for place in (clause.place, clause.predicate):
        if isinstance(place, Place):
            _phrase(place.noun_phrase, names)
    if clause.content is not None:
        names.add("complement")
        _clause(clause.content, names)


def _phrase(nominal: Nominal | None, names: set[str]) -> None:
    if isinstance(nominal, Several):
        _phrase(nominal.first, names)
        _phrase(nominal.second, names)
    if not isinstance(nominal, NounPhrase):
        return
    for adjective in nominal.adjectives:
        _pair(adjective, nominal.noun, names)
    _phrase(nominal.owner, names)
    if nominal.place is not None:
        _phrase(nominal.place.noun_phrase, names)
    if nominal.relative is not None:
        names.add("relative")
        _clause(nominal.relative.clause, names, relative=True)


def _pair(adjective: Adjective, noun: Noun, names: set[str]) -> None:
    if (adjective.english, noun.english[0]) in HELD_DESCRIPTIONS:
        names.add("held-pair")
