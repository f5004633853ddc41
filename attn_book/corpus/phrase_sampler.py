"""Draws noun phrases: which words go together, which determiners fit where, who pronouns may stand for."""

from __future__ import annotations

from functools import cache
from random import Random

from attn_book.corpus.lexicon import ADJECTIVES, HELD_PAIRS, NOUNS, NUMBERS, PLACES, Adjective, Noun
from attn_book.corpus.tree import Clause, Nominal, NounPhrase, Place, Pronoun, Relative, Several, agreement
from attn_book.corpus.verbs import TRANSITIVE, Verb

MOVABLE = ("person", "animal", "vehicle", "thing", "fruit", "clothes", "text")
SMALL_PLACES = tuple(place for place in PLACES if place[0] in ("on", "under")) + (("in", ("container",)),)
LARGE_PLACES = tuple(
    (preposition, tuple(c for c in classes if c != "container"))
    for preposition, classes in PLACES
    if preposition not in ("on", "under")
)
LASTING = ("know", "love")
"""Verbs that are used in the present only, and without "often"."""


@cache
def nouns_of(classes: tuple[str, ...]) -> tuple[Noun, ...]:
    """All nouns with one of these classes."""
    return tuple(noun for noun in NOUNS.values() if not noun.classes.isdisjoint(classes))


@cache
def adjectives_of(noun: Noun, held: bool) -> tuple[Adjective, ...]:
    """The adjectives that may describe a noun: those kept for the structures split, or the others."""
    return tuple(
        adjective
        for adjective in ADJECTIVES.values()
        if not adjective.classes.isdisjoint(noun.classes)
        and ((adjective.english, noun.english[0]) in HELD_PAIRS) == held
    )


@cache
def verbs_with(verbs: tuple[Verb, ...], noun: Noun, role: str) -> tuple[Verb, ...]:
    """The verbs that take this noun as "subject" or "object"."""
    return tuple(
        verb for verb in verbs if not noun.classes.isdisjoint(verb.subjects if role == "subject" else verb.objects)
    )


class PhraseSampler:
    """Draws phrases from a random stream; a budget of English words steers how much each is given.

    `held` is one of `sampler.HELD_STRUCTURES` to be put in, or "".
    """

    def __init__(self, random: Random, held: str = "") -> None:
        self.random = random
        self.held = held
        self.alone = True  # whether he, they … have nobody else in the sentence to stand for
        self.past = False  # the tense of the clause at hand, which its relative clauses follow

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def tense_for(self, verb: Verb, tense: str) -> str:
        """The tense, or the present where the verb has no other or English would not show the past."""
        if verb.english in LASTING or (tense == "past" and verb.past == verb.english):
            return "present"
        return tense

    def others(self, subject: Nominal, *, agreeing: bool = False) -> tuple[str, ...]:
        """Pronouns that differ from the subject in person; `agreeing`: only those whose gender is known."""
        person = agreement(subject).person
        mine = ("i", "we") if person == 1 else ()
        known = ("he", "she") if self.past and not self.alone else ("he", "she", "they")
        known = known if agreeing else (*known, "i", "we")
        return tuple(word for word in known if word not in mine)

    def subject(self, classes: tuple[str, ...], budget: int, *, denied: bool = False) -> Nominal:
        """A subject of these classes."""
        if "person" in classes and self.chance(0.2):
            return Pronoun(self.random.choice(("i", "he", "she", "we", "they") if self.alone else ("i", "we")))
        noun = self.random.choice(nouns_of(classes))
        alike = [n for n in nouns_of(classes) if n is not noun and n.classes <= noun.classes]
        if budget >= 5 and alike and "kin" not in noun.classes and self.chance(0.12):
            return Several(
                self.noun_phrase(noun, 2, plural=False, determiner="the", flat=True),
                self.noun_phrase(self.random.choice(alike), budget - 3, plural=False, determiner="the", flat=True),
            )
        return self.noun_phrase(noun, budget, denied=denied)

    def object(
        self, verb: Verb, budget: int, subject: Nominal | None, negation: str = "", asked: bool = False
    ) -> Nominal:
        """A direct object of this verb."""
        human = "person" in verb.objects
        held = self.held == "question-with-pronoun"
        if held or (human and not asked and subject is not None and self.chance(0.25)):
            return Pronoun(self.random.choice(self.others(subject or Pronoun("he"), agreeing=True)))
        noun = self.random.choice(nouns_of(verb.objects))
        if isinstance(subject, NounPhrase) and noun is subject.noun:
            noun = self.random.choice(nouns_of(verb.objects))
        return self.noun_phrase(noun, budget, object=True, negated=bool(negation), who=subject, asked=asked)

    def determiner(
        self, noun: Noun, *, object: bool, denied: bool, negated: bool, asked: bool, who: Nominal | None
    ) -> tuple[str, bool]:
        """A determiner and whether the noun is plural."""
        plural = not noun.mass and "only" not in noun.classes and self.chance(0.3)
        roll = self.random.random()
        if "kin" in noun.classes or ("own" in noun.classes and roll < 0.15):
            choices = ["my", "our", "your"]
            if who is not None and agreement(who).person == 3:
                mine = agreement(who)
                choices += ["their"] * 3 if mine.plural else ["his" if mine.gender == "m" else "her"] * 3
            return self.random.choice(choices), plural
        if roll < 0.25:
            return "this", plural
        if object and not asked and roll < 0.5:
            if noun.mass or plural:
                return "some", plural
            return "a", False
        if object and not negated and not noun.mass and roll < 0.62:
            return self.random.choice((*NUMBERS, "many", "several")), True
        if not denied and not noun.mass and roll < 0.36:
            return self.random.choice((*NUMBERS, "several")), True
        if not denied and not noun.mass and not object and roll < 0.44:
            return ("a", False) if self.chance(0.6) else ("every", False)
        return "the", plural

    def noun_phrase(
        self,
        noun: Noun,
        budget: int,
        *,
        determiner: str | None = None,
        plural: bool | None = None,
        object: bool = False,
        denied: bool = False,
        negated: bool = False,
        asked: bool = False,
        flat: bool = False,
        plain: bool = False,
        who: Nominal | None = None,
    ) -> NounPhrase:
        """A noun phrase of about `budget` words; `flat` without clauses in it, `plain` without adjectives."""
        chosen, many = self.determiner(noun, object=object, denied=denied, negated=negated, asked=asked, who=who)
        chosen = determiner or chosen
        if plural is not None and plural != many:
            many = plural
            if chosen in ("a", "every", "some", "many", "several", *NUMBERS):
                chosen = "the"
        spare = budget - 2
        adjectives = self.adjectives(noun, spare) if not plain else ()
        spare -= len(adjectives)
        owner = place = relative = None
        flat = flat or "kin" in noun.classes or (negated and chosen in ("a", "some"))
        flat = flat or chosen in ("my", "our", "your", "his", "her", "their")
        if not flat and spare >= 4 and self.chance(0.7):
            relative = self.relative(noun, spare)
            spare = 0
        elif spare >= 2 and chosen == "the" and "own" in noun.classes and self.chance(0.5):
            holder = self.random.choice(nouns_of(("person",)))
            kind = None if "kin" in holder.classes else "the"
            owner = self.noun_phrase(holder, 2, plural=False, determiner=kind, flat=True)
        elif not flat and spare >= 3 and self.chance(0.6) and not noun.classes.isdisjoint(MOVABLE):
            place = self.place(spare, noun)
        return NounPhrase(chosen, noun, many, adjectives, owner, place, relative)

    def adjectives(self, noun: Noun, spare: int) -> tuple[Adjective, ...]:
        """None, one, or one that French puts before the noun and one after."""
        if self.held == "held-pair":
            held = adjectives_of(noun, True)
            if held:
                return (self.random.choice(held),)
        fitting = adjectives_of(noun, False)
        if spare < 1 or not fitting or not self.chance(0.6):
            return ()
        first = self.random.choice(fitting)
        if spare < 2 or not first.before or not self.chance(0.4):
            return (first,)
        after = [adjective for adjective in fitting if not adjective.before]
        return (first, self.random.choice(after)) if after else (first,)

    def place(self, budget: int, noun: Noun | None = None) -> Place:
        """In the garden, near the river, at the market; for a small thing also in the box, on the table."""
        small = noun is not None and noun.classes.isdisjoint(("person", "animal", "vehicle"))
        preposition, classes = self.random.choice(SMALL_PLACES if small else LARGE_PLACES)
        return Place(
            preposition,
            self.noun_phrase(
                self.random.choice(nouns_of(classes)),
                min(budget - 1, 3),
                determiner="the",
                plural=False,
                flat=True,
            ),
        )

    def relative(self, noun: Noun, budget: int) -> Relative | None:
        """A relative clause that says what this noun does, or what is done with it."""
        tense = "past" if self.past else self.random.choice(("present", "present", "past"))
        negation = "not" if self.held == "negated-relative" else ""
        doing = verbs_with(TRANSITIVE, noun, "subject")
        undergoing = verbs_with(TRANSITIVE, noun, "object")
        if doing and self.chance(0.6):
            verb = self.random.choice(doing)
            thing = self.random.choice([n for n in nouns_of(verb.objects) if n is not noun])
            phrase = self.noun_phrase(thing, budget - 2, object=True, negated=bool(negation))
            return Relative(Clause(None, verb, phrase, tense=self.tense_for(verb, tense), negation=negation))
        if not undergoing:
            return None
        verb = self.random.choice(undergoing)
        self.alone = False
        subject = self.subject(verb.subjects, min(budget - 2, 4), denied=bool(negation))
        return Relative(Clause(subject, verb, tense=self.tense_for(verb, tense), negation=negation))
