"""Names for what a sentence is made of, read off its tree."""

from __future__ import annotations

from attn_book.corpus.lexicon import HELD_PAIRS, Adjective, Noun
from attn_book.corpus.tree import Clause, Joined, Nominal, NounPhrase, Place, Pronoun, Sentence, Several


def labels(sentence: Sentence) -> frozenset[str]:
    """The names of the structures in a sentence, those of `sampler.HELD_STRUCTURES` among them."""
    found: set[str] = set()
    if sentence.question:
        found.add("question")
    if isinstance(sentence.opening, Place):
        _phrase(sentence.opening.noun_phrase, found)
    body = sentence.body
    while isinstance(body, Joined):
        found.add("joined")
        _clause(body.second, found)
        body = body.first
    _clause(body, found, question=sentence.question)
    return frozenset(found)


def _clause(clause: Clause, found: set[str], *, question: bool = False, relative: bool = False) -> None:
    if clause.negation:
        found.add("negated-relative" if relative else "negation")
    if isinstance(clause.object, Pronoun) or isinstance(clause.recipient, Pronoun):
        found.add("question-with-pronoun" if question else "pronoun")
    if clause.tense == "future" and isinstance(clause.recipient, Pronoun):
        found.add("future-with-recipient-pronoun")
    if isinstance(clause.predicate, Adjective) and isinstance(clause.subject, NounPhrase):
        _pair(clause.predicate, clause.subject.noun, found)
    for nominal in (clause.subject, clause.object, clause.recipient):
        _phrase(nominal, found)
    for place in (clause.place, clause.predicate):
        if isinstance(place, Place):
            _phrase(place.noun_phrase, found)
    if clause.content is not None:
        found.add("complement")
        _clause(clause.content, found)


def _phrase(nominal: Nominal | None, found: set[str]) -> None:
    if isinstance(nominal, Several):
        _phrase(nominal.first, found)
        _phrase(nominal.second, found)
    if not isinstance(nominal, NounPhrase):
        return
    for adjective in nominal.adjectives:
        _pair(adjective, nominal.noun, found)
    _phrase(nominal.owner, found)
    if nominal.place is not None:
        _phrase(nominal.place.noun_phrase, found)
    if nominal.relative is not None:
        found.add("relative")
        _clause(nominal.relative.clause, found, relative=True)


def _pair(adjective: Adjective, noun: Noun, found: set[str]) -> None:
    if (adjective.english, noun.english[0]) in HELD_PAIRS:
        found.add("held-pair")
