"""Draws sentences: which words go together, how long a sentence gets, what is kept for the structures split."""

from __future__ import annotations

from functools import cache
from random import Random

from attn_core.data.lexicon import ADJECTIVES, HELD_PAIRS, NOUNS, NUMBERS, PLACES, TIMES, Adjective, Noun
from attn_core.data.tree import Agreement, Clause, Joined, Nominal, NounPhrase, Place, Pronoun, Relative
from attn_core.data.tree import Sentence, Several, agreement
from attn_core.data.verbs import BE, GIVING, IDIOMS, INTRANSITIVE, SAYING, TRANSITIVE, Verb

HELD_STRUCTURES = ("held-pair", "negated-relative", "question-with-pronoun", "future-with-recipient-pronoun")
"""What only the structures split has; the first is an adjective with a noun out of `lexicon.HELD_PAIRS`."""

TENSES = ("present",) * 5 + ("past",) * 3 + ("future",) * 2
ANIMATE = ("person", "animal")


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
        verb
        for verb in verbs
        if not noun.classes.isdisjoint(verb.subjects if role == "subject" else verb.objects)
    )


class Sampler:
    """Draws sentence trees from a random stream; `held` is one of `HELD_STRUCTURES` to be put in, or "".

    Lengths are steered by a budget of English words, which phrases spend and share out.
    """

    def __init__(self, random: Random, held: str = "") -> None:
        self.random = random
        self.held = held

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def sentence(self) -> Sentence:
        """A sentence; lengths spread from four words to about thirty-five."""
        roll = self.random.random()
        low, high = (4, 10) if roll < 0.56 else (11, 17) if roll < 0.80 else (18, 34)
        budget = self.random.randint(low, high) - 1
        if self.held == "question-with-pronoun":
            return Sentence(self.asked(budget), question=True)
        if self.held != "future-with-recipient-pronoun" and budget < 16 and self.chance(0.15):
            return Sentence(self.asked(budget), question=True)
        if budget > 7 and self.chance(0.12):
            if self.chance(0.5):
                tense = self.random.choice(TENSES)
                return Sentence(
                    self.clause(budget - 2, tense=tense, timed=False),
                    opening=self.random.choice(tuple(TIMES[tense])),
                )
            return Sentence(self.clause(budget - 4, placed=False), opening=self.place(3))
        return Sentence(self.body(budget))

    def body(self, budget: int) -> Clause | Joined:
        """One clause, or several that are joined."""
        if budget >= 11 and self.chance(0.55):
            share = self.random.randint(5, budget - 6)
            conjunction = self.random.choice(("and", "but", "because", "when", "while", "and_it"))
            if conjunction == "and_it":
                return self.taken_up(budget)
            if conjunction == "and" and self.chance(0.5):
                first = self.clause(share, tense="present" if self.chance(0.5) else "past", joined=True)
                return Joined(first, "and", self.same_subject(first, budget - share))
            tense = "present" if conjunction in ("when", "while") else self.random.choice(TENSES)
            first = self.clause(share, tense=tense)
            return Joined(first, conjunction, self.clause(budget - share - 1, tense=tense, timed=False))
        return self.clause(budget)

    def same_subject(self, first: Clause, budget: int) -> Clause:
        """ "… and eats the bread": a second clause that shares the subject of the first."""
        subject = first.subject
        noun = subject.noun if isinstance(subject, NounPhrase) else NOUNS["man"]
        verbs = [verb for verb in verbs_with(TRANSITIVE, noun, "subject") if verb is not first.verb]
        verb = self.random.choice(verbs)
        return Clause(None, verb, self.object(verb, budget - 2, subject), tense=first.tense)

    def taken_up(self, budget: int) -> Joined:
        """ "the man buys the pear and eats it": it and them with what they stand for in sight."""
        tense = "past" if self.chance(0.4) else "present"
        subject = self.subject(("person",), min(budget - 8, 7))
        noun = self.random.choice(nouns_of(("thing", "fruit", "clothes", "text", "vehicle", "meal", "drink")))
        first, second = self.random.sample(verbs_with(TRANSITIVE, noun, "object"), 2)
        plural = not noun.mass and self.chance(0.3)
        thing = self.noun_phrase(noun, budget - 8, plural=plural, determiner="the" if self.chance(0.7) else None)
        stand = Pronoun("they" if plural else "it", noun.gender)
        again = None if self.chance(0.5) else self.pronoun_for(agreement(subject))
        return Joined(
            Clause(subject, first, thing, tense=tense),
            "and" if self.chance(0.7) or again is None else "but",
            Clause(again, second, stand, tense=tense, negation="not" if again and self.chance(0.3) else ""),
        )

    def pronoun_for(self, who: Agreement) -> Pronoun:
        """The subject pronoun that stands for a person."""
        if who.plural:
            return Pronoun("they", who.gender)
        return Pronoun("she" if who.gender == "f" else "he")

    def asked(self, budget: int) -> Clause:
        """A clause fit for a question."""
        return self.clause(budget, asked=True)

    def clause(
        self,
        budget: int,
        *,
        tense: str | None = None,
        asked: bool = False,
        timed: bool = True,
        placed: bool = True,
        joined: bool = False,
    ) -> Clause:
        """A clause of about `budget` words; `asked` in a question, `joined` where others share its subject."""
        tense = tense or self.random.choice(TENSES)
        if budget >= 10 and not joined and tense == "present" and self.chance(0.5):
            return self.saying(budget)
        kinds = ["transitive"] * 5 + ["intransitive"] * 2 + ["predicate"] * 2 + ["giving"] * 2
        kind = self.random.choice(kinds[: 5 if joined else 11 if budget >= 7 else 9])
        if self.held == "future-with-recipient-pronoun":
            kind, tense = "giving", "future"
        elif self.held == "question-with-pronoun":
            kind = "transitive"
        negation = ""
        if self.chance(0.1 if asked else 0.25):
            negation = "never" if self.chance(0.25) and not asked else "not"
        if kind == "predicate":
            return self.predicate(budget, tense, negation)
        if kind == "giving":
            return self.giving(budget, tense, negation)
        verb = self.random.choice(INTRANSITIVE if kind == "intransitive" else TRANSITIVE)
        spare = budget - (6 if kind == "transitive" else 4) - (tense == "future") * 3 - (negation == "not") * 2
        place = time = None
        if placed and spare >= 3 and self.chance(0.5 if kind == "transitive" else 0.8):
            place = self.place(spare)
            spare -= 3
        if timed and spare >= 1 and self.chance(0.2):
            time = self.random.choice(tuple(TIMES[tense]))
            spare -= 1
        share = self.random.randint(0, max(spare, 0)) if kind == "transitive" else spare
        subject = self.subject(verb.subjects, 2 + min(share, 9), denied=bool(negation), joined=joined)
        adverb = ""
        if tense == "present" and negation != "never" and self.chance(0.15):
            adverb = self.random.choice(("often", "always", "sometimes"))
            if negation and adverb == "sometimes":
                adverb = "often"
        return Clause(
            subject,
            verb,
            self.object(verb, 2 + spare - share, subject, negation, asked) if kind == "transitive" else None,
            tense=tense,
            negation=negation,
            adverb=adverb,
            place=place,
            time=time or "",
        )

    def saying(self, budget: int) -> Clause:
        """ "the teacher thinks that …": only verbs and moods after which French keeps the indicative."""
        verb = self.random.choice(SAYING)
        share = self.random.randint(2, max(2, min(5, budget - 8)))
        return Clause(
            self.subject(("person",), share),
            verb,
            content=self.clause(budget - share - 2),
        )

    def predicate(self, budget: int, tense: str, negation: str) -> Clause:
        """ "the soup is hot", "the man was hungry", "the book is on the table"."""
        spare = budget - 4 - (tense == "future") * 3 - (negation == "not")
        if self.chance(0.25):
            subject = self.subject(ANIMATE, 2 + spare, denied=bool(negation))
            return Clause(subject, BE, predicate=self.random.choice(tuple(IDIOMS)), tense=tense, negation=negation)
        if self.chance(0.3):
            noun = self.random.choice(nouns_of(("thing", "clothes", "text", "animal", "fruit")))
            where = self.place(3)
            phrase = self.noun_phrase(noun, 2 + spare - 2, denied=bool(negation))
            return Clause(phrase, BE, predicate=where, tense=tense, negation=negation)
        noun = self.random.choice(tuple(NOUNS.values()))
        choices = [a for a in adjectives_of(noun, False) if a.english not in ("new", "good", "bad", "long")]
        adjective = self.random.choice(choices or [ADJECTIVES["dirty"]])
        phrase = self.noun_phrase(noun, 2 + spare, denied=bool(negation), plain=True)
        return Clause(phrase, BE, predicate=adjective, tense=tense, negation=negation)

    def giving(self, budget: int, tense: str, negation: str) -> Clause:
        """ "the girl gives the letter to the king" or "… to him", where French puts lui before the verb."""
        verb = self.random.choice(GIVING)
        spare = budget - 8 - (tense == "future") * 3 - (negation == "not") * 2
        subject = self.subject(verb.subjects, 2 + min(max(spare, 0), 8), denied=bool(negation))
        thing = self.random.choice(nouns_of(verb.objects))
        phrase = self.noun_phrase(thing, 3 + spare // 2, object=True, negated=bool(negation), flat=True)
        recipient: NounPhrase | Pronoun
        held = self.held == "future-with-recipient-pronoun"
        if held or (tense != "future" and self.chance(0.5)):
            recipient = Pronoun(self.random.choice(self.others(subject)))
        else:
            recipient = self.noun_phrase(self.random.choice(nouns_of(("person",))), 2, object=True, flat=True)
        return Clause(subject, verb, phrase, recipient, tense=tense, negation=negation)

    def others(self, subject: Nominal, *, agreeing: bool = False) -> tuple[str, ...]:
        """Pronouns that differ from the subject in person; `agreeing`: only those whose gender is known."""
        person = agreement(subject).person
        mine = ("i", "we") if person == 1 else ("you",) if person == 2 else ()
        known = ("he", "she", "they") if agreeing else ("he", "she", "they", "i", "we", "you")
        return tuple(word for word in known if word not in mine)

    def subject(
        self, classes: tuple[str, ...], budget: int, *, denied: bool = False, joined: bool = False
    ) -> Nominal:
        """A subject of these classes."""
        if "person" in classes and not joined and self.chance(0.2):
            return Pronoun(self.random.choice(("i", "he", "she", "we", "you", "they")))
        noun = self.random.choice(nouns_of(classes))
        alike = [n for n in nouns_of(classes) if n is not noun and n.classes <= noun.classes]
        if budget >= 5 and alike and "kin" not in noun.classes and self.chance(0.12):
            return Several(
                self.noun_phrase(noun, 2, plural=False, determiner="the", flat=True),
                self.noun_phrase(
                    self.random.choice(alike), budget - 3, plural=False, determiner="the", flat=True
                ),
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
        plural = not noun.mass and self.chance(0.3)
        own = not noun.classes.isdisjoint(("own", "animal", "drink", "meal"))
        if "kin" in noun.classes:
            return self.random.choice(("my", "our", "your", "my", "our")), plural
        roll = self.random.random()
        if own and roll < 0.15:
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
        chosen, many = self.determiner(
            noun, object=object, denied=denied, negated=negated, asked=asked, who=who
        )
        chosen = determiner or chosen
        if plural is not None and plural != many:
            many = plural
            if chosen in ("a", "every", "some", "many", "several", *NUMBERS):
                chosen = "the"
        spare = budget - 2
        adjectives = self.adjectives(noun, spare) if not plain else ()
        spare -= len(adjectives)
        owner = place = relative = None
        if not flat and spare >= 4 and self.chance(0.7):
            relative = self.relative(noun, many, spare)
            spare = 0
        elif spare >= 2 and chosen == "the" and "own" in noun.classes and self.chance(0.5):
            owner = self.noun_phrase(self.random.choice(nouns_of(("person",))), 2, plural=False, flat=True)
        elif not flat and spare >= 3 and self.chance(0.6) and noun.classes.isdisjoint(("drink", "meal")):
            if noun.classes.isdisjoint(("area", "building", "spot", "venue", "opening")):
                place = self.place(spare)
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

    def place(self, budget: int) -> Place:
        """In the garden, near the river, at the market."""
        preposition, classes = self.random.choice(PLACES)
        noun = self.random.choice(nouns_of(classes))
        return Place(
            preposition,
            self.noun_phrase(noun, min(budget - 1, 3), determiner="the", plural=False, flat=True),
        )

    def relative(self, noun: Noun, plural: bool, budget: int) -> Relative | None:
        """A relative clause that says what this noun does, or what is done with it."""
        tense = self.random.choice(("present", "present", "past"))
        negation = "not" if self.held == "negated-relative" else ""
        doing = verbs_with(TRANSITIVE, noun, "subject")
        undergoing = verbs_with(TRANSITIVE, noun, "object")
        if doing and self.chance(0.6):
            verb = self.random.choice(doing)
            thing = self.random.choice(nouns_of(verb.objects))
            phrase = self.noun_phrase(thing, budget - 2, object=True, negated=bool(negation))
            return Relative(Clause(None, verb, phrase, tense=tense, negation=negation))
        if not undergoing:
            return None
        verb = self.random.choice(undergoing)
        subject = self.subject(verb.subjects, min(budget - 2, 4))
        return Relative(Clause(subject, verb, tense=tense, negation=negation))
