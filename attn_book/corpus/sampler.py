"""Draws sentences: their length, the clauses they are made of, which determiners fit where, what pronouns stand for."""

from __future__ import annotations

from random import Random

from attn_book.corpus.lexicon import (
    ADJECTIVES,
    BE,
    GIVING,
    IDIOMS,
    INTRANSITIVE,
    LARGE_PLACES,
    NOUNS,
    NUMBERS,
    SAYING,
    SMALL_PLACES,
    STATES,
    TIMES,
    TRANSITIVE,
    Adjective,
    Noun,
    Verb,
    adjectives_of,
    nouns_of,
    verbs_with,
)
from attn_book.corpus.trees import (
    Clause,
    Joined,
    Nominal,
    NounPhrase,
    Place,
    Pronoun,
    Relative,
    Sentence,
    Several,
    agreement,
    pronoun_for,
)

HELD_STRUCTURES = ("held-pair", "negated-relative", "question-with-pronoun", "future-with-recipient-pronoun")
"""What only the structures split has; a "held-pair" is an adjective with a noun of ``lexicon.HELD_DESCRIPTIONS``."""

TENSES = ("present",) * 5 + ("past",) * 3 + ("future",) * 2
ANIMATE = ("person", "animal")
FIRST = ("see", "find", "buy", "steal", "write", "taste")
"""Verbs that may come first in what one does to a thing: one buys it and eats it."""
LASTING = ("know", "love")
"""Verbs that are used only in the present, and without "often"."""
MOVABLE = ("person", "animal", "vehicle", "thing", "fruit", "clothes", "text")


class Sampler:
    """Draws sentence trees from a random stream; ``held`` is one of ``HELD_STRUCTURES`` to be put in, or "".

    Lengths are steered by a budget of English words, which phrases spend and share out.
    """

    def __init__(self, random: Random, held: str = "") -> None:
        self.random, self.choice = random, random.choice
        self.held = held
        self.alone = True  # whether nobody else in the sentence could be meant by he, she, they
        self.past = False  # whether the current clause is in the past; its relative clauses are then too

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def tense_for(self, verb: Verb, tense: str) -> str:
        """The tense, or the present if the verb has no other or its English past looks the same (read)."""
        return "present" if verb.english in LASTING or (tense == "past" and verb.past == verb.english) else tense

    def others(self, subject: Nominal, *, agreeing: bool = False) -> tuple[str, ...]:
        """Pronouns for somebody other than the subject; with ``agreeing`` only those whose gender is known."""
        person = agreement(subject).person
        words = ("he", "she") if self.past and not self.alone else ("he", "she", "they")
        return words if agreeing or person == 1 else (*words, "i", "we")

    def subject(self, classes: tuple[str, ...], budget: int, *, definite: bool = False) -> Nominal:
        """A subject of these classes."""
        if "person" in classes and self.chance(0.2):
            return Pronoun(self.choice(("i", "he", "she", "we", "they") if self.alone else ("i", "we")))
        noun = self.choice(nouns_of(classes))
        alike = [n for n in nouns_of(classes) if n is not noun and n.classes <= noun.classes]
        if budget >= 5 and alike and "kin" not in noun.classes and self.chance(0.12):
            return Several(
                self.noun_phrase(noun, 2, plural=False, determiner="the", flat=True),
                self.noun_phrase(self.choice(alike), budget - 3, plural=False, determiner="the", flat=True),
            )
        return self.noun_phrase(noun, budget, definite=definite)

    def object(
        self, verb: Verb, budget: int, subject: Nominal, *, negated: bool = False, question: bool = False
    ) -> Nominal:
        """A direct object of this verb."""
        human = "person" in verb.objects and not question
        if self.held == "question-with-pronoun" or (human and self.chance(0.25)):
            return Pronoun(self.choice(self.others(subject, agreeing=True)))
        noun = self.choice(nouns_of(verb.objects))
        if isinstance(subject, NounPhrase) and noun is subject.noun:
            noun = self.choice(nouns_of(verb.objects))
        return self.noun_phrase(noun, budget, object=True, negated=negated, who=subject, question=question)

    def determiner(
        self, noun: Noun, *, object: bool, definite: bool, negated: bool, question: bool, who: Nominal | None
    ) -> tuple[str, bool]:
        """A determiner and whether the noun is plural."""
        plural = not noun.mass and "only" not in noun.classes and self.chance(0.3)
        roll = self.random.random()
        if "kin" in noun.classes or ("own" in noun.classes and roll < 0.15):
            choices = ["my", "our", "your"]
            person, many, gender = agreement(who) if who is not None else (1, False, "")
            if person == 3:
                choices += ["their" if many else "his" if gender == "m" else "her"] * 3
            return self.choice(choices), plural
        if roll < 0.25:
            return "this", plural
        if object and not question and roll < 0.5:
            return "some" if noun.mass or plural else "a", plural
        if object and not negated and not noun.mass and roll < 0.62:
            return self.choice((*NUMBERS, "many", "several")), True
        if not definite and not noun.mass and roll < 0.36:
            return self.choice((*NUMBERS, "several")), True
        if not definite and not noun.mass and not object and roll < 0.44:
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
        definite: bool = False,
        negated: bool = False,
        question: bool = False,
        flat: bool = False,
        bare: bool = False,
        who: Nominal | None = None,
    ) -> NounPhrase:
        """A noun phrase of about ``budget`` words.

        ``object``: it is the object of a verb, which may be ``negated`` and whose subject is ``who``. ``definite``:
        without "a", "every" or a number; ``flat``: without a place or a clause in it; ``bare``: without adjectives.
        """
        chosen, many = self.determiner(
            noun, object=object, definite=definite, negated=negated, question=question, who=who
        )
        chosen = determiner or chosen
        if plural is not None and plural != many:
            many = plural
            if chosen in ("a", "every", "some", "many", "several", *NUMBERS):
                chosen = "the"
        spare = budget - 2
        adjectives = self.adjectives(noun, spare) if not bare else ()
        spare -= len(adjectives)
        owner = place = relative = None
        flat = flat or "kin" in noun.classes or (negated and chosen in ("a", "some"))
        flat = flat or chosen in ("my", "our", "your", "his", "her", "their")
        if not flat and spare >= 4 and self.chance(0.7):
            relative = self.relative(noun, spare)
            spare = 0
        elif spare >= 2 and chosen == "the" and "own" in noun.classes and self.chance(0.5):
            holder = self.choice(nouns_of(("person",)))
            the = None if "kin" in holder.classes else "the"
            owner = self.noun_phrase(holder, 2, plural=False, determiner=the, flat=True)
        elif not flat and spare >= 3 and self.chance(0.6) and not noun.classes.isdisjoint(MOVABLE):
            place = self.place(spare, noun)
        return NounPhrase(chosen, noun, many, adjectives, owner, place, relative)

    def adjectives(self, noun: Noun, spare: int) -> tuple[Adjective, ...]:
        """No adjective, one, or one that French puts before the noun and one that it puts after."""
        if self.held == "held-pair" and (held := adjectives_of(noun, True)):
            return (self.choice(held),)
        fitting = adjectives_of(noun, False)
        if spare < 1 or not fitting or not self.chance(0.6):
            return ()
        first = self.choice(fitting)
        if spare < 2 or not first.before or not self.chance(0.4):
            return (first,)
        after = [adjective for adjective in fitting if not adjective.before]
        return (first, self.choice(after)) if after else (first,)

    def place(self, budget: int, noun: Noun | None = None) -> Place:
        """In the garden, near the river, at the market; where a small thing is, also in the box, on the table."""
        small = noun is not None and noun.classes.isdisjoint(("person", "animal", "vehicle"))
        preposition, classes = self.choice(SMALL_PLACES if small else LARGE_PLACES)
        inner, budget = self.choice(nouns_of(classes)), min(budget - 1, 3)
        return Place(preposition, self.noun_phrase(inner, budget, determiner="the", plural=False, flat=True))

    def relative(self, noun: Noun, budget: int) -> Relative | None:
        """A relative clause that says what the noun does, or what is done with it."""
        tense = "past" if self.past else self.choice(("present", "present", "past"))
        negation = "not" if self.held == "negated-relative" else ""
        doing = verbs_with(TRANSITIVE, noun, "subject")
        undergoing = verbs_with(TRANSITIVE, noun, "object")
        if doing and self.chance(0.6):
            verb = self.choice(doing)
            thing = self.choice([n for n in nouns_of(verb.objects) if n is not noun])
            phrase = self.noun_phrase(thing, budget - 2, object=True, negated=bool(negation))
            return Relative(Clause(None, verb, phrase, tense=self.tense_for(verb, tense), negation=negation))
        if not undergoing:
            return None
        verb = self.choice(undergoing)
        self.alone = False
        subject = self.subject(verb.subjects, min(budget - 2, 4), definite=bool(negation))
        return Relative(Clause(subject, verb, tense=self.tense_for(verb, tense), negation=negation))

    def sentence(self) -> Sentence:
        """A sentence; lengths spread from four words to about thirty-five."""
        self.alone = True
        roll = self.random.random()
        low, high = (4, 10) if roll < 0.48 else (11, 17) if roll < 0.74 else (18, 40)
        budget = self.random.randint(low, high) - 1
        if self.held == "future-with-recipient-pronoun":
            return Sentence(self.clause(budget))
        if self.held == "question-with-pronoun" or (budget < 16 and self.chance(0.15)):
            return Sentence(self.clause(budget, question=True), question=True)
        if budget > 7 and self.chance(0.12):
            if self.chance(0.5):
                tense = self.choice(TENSES)
                clause = self.clause(budget - 2, tense=tense, timed=False)
                return Sentence(clause, opening=self.choice(tuple(TIMES[tense])))
            return Sentence(self.clause(budget - 4, placed=False), opening=self.place(3))
        return Sentence(self.body(budget))

    def body(self, budget: int) -> Clause | Joined:
        """One clause, or several that are joined."""
        if budget < 10 or (budget < 18 and not self.chance(0.65)):
            return self.clause(budget)
        if budget >= 24 and self.chance(0.6):
            share = self.random.randint(9, budget - 10)
            return Joined(self.body(share), "and", self.second(budget - share - 1))
        kind = self.choice(("and", "but", "because", "when", "while", "shared", "taken up"))
        if kind == "taken up":
            return self.taken_up(budget)
        if kind == "because":
            return self.because(budget)
        share = self.random.randint(5, budget - 5)
        if kind == "shared":
            tense = self.choice(("present", "past"))
            main = self.clause(share, tense=tense, action=True, negated=False)
            return Joined(main, "and", self.same_subject(main, budget - share))
        if kind in ("when", "while"):  # in the present: with other tenses the languages differ after quand
            main = self.clause(share, tense="present", action=True, timed=False)
            return Joined(main, kind, self.second(budget - share - 1, tense="present", action=True, negated=False))
        tense = self.choice(TENSES)
        return Joined(self.clause(share, tense=tense), kind, self.second(budget - share - 1, tense=tense))

    def second(self, budget: int, *, tense: str | None = None, action: bool = False, negated: bool = True) -> Clause:
        """A clause after another one."""
        self.alone = False
        return self.clause(budget, tense=tense, action=action, negated=negated, timed=False)

    def because(self, budget: int) -> Joined:
        """A clause with its reason: "the woman sleeps because she is tired"."""
        tense = self.choice(("present", "past"))
        first = self.clause(budget - 4, tense=tense, action=True, timed=False)
        reasons: list[Adjective | str] = [*IDIOMS, *(ADJECTIVES[state] for state in STATES)]
        reason = self.choice(reasons)
        who = first.subject
        if isinstance(who, NounPhrase) and "animal" in who.noun.classes and not who.plural:
            who = self.noun_phrase(self.choice(nouns_of(("person",))), 2, plural=False)
        elif isinstance(who, Pronoun):
            reason = self.choice(tuple(IDIOMS))
        elif who is not None:
            who = pronoun_for(who)
        return Joined(first, "because", Clause(who, BE, predicate=reason, tense=first.tense))

    def same_subject(self, first: Clause, budget: int) -> Clause:
        """A second clause that shares the subject of the first: "… and eats the bread"."""
        subject = first.subject
        assert subject is not None
        noun = subject.noun if isinstance(subject, NounPhrase) else NOUNS["man"]
        self.alone = False
        verbs = [verb for verb in verbs_with(TRANSITIVE, noun, "subject") if verb is not first.verb]
        verb = self.choice([verb for verb in verbs if self.tense_for(verb, first.tense) == first.tense])
        return Clause(None, verb, self.object(verb, budget - 2, subject), tense=first.tense)

    def taken_up(self, budget: int) -> Joined:
        """Two clauses, the second with "it" for the object of the first: "the man buys the pear and eats it"."""
        tense = "past" if self.chance(0.4) else "present"
        subject = self.subject(("person",), min(budget - 8, 7))
        noun = self.choice(nouns_of(("thing", "fruit", "clothes", "text", "vehicle", "meal", "drink")))
        verbs = verbs_with(TRANSITIVE, noun, "object")
        first = self.choice([verb for verb in verbs if verb.english in FIRST])
        later = [verb for verb in verbs if verb.english not in FIRST]
        second = self.choice([verb for verb in later if self.tense_for(verb, tense) == tense])
        plural = not noun.mass and self.chance(0.3)
        thing = self.noun_phrase(noun, budget - 8, plural=plural, determiner="the" if self.chance(0.7) else None)
        again = None if self.chance(0.5) else pronoun_for(subject)
        link = "and" if self.chance(0.7) or again is None else "but"
        negation = "not" if again and self.chance(0.3) else ""
        after = Clause(again, second, Pronoun("they" if plural else "it", noun.gender), tense=tense, negation=negation)
        return Joined(Clause(subject, first, thing, tense=tense), link, after)

    def clause(
        self,
        budget: int,
        *,
        tense: str | None = None,
        question: bool = False,
        timed: bool = True,
        placed: bool = True,
        action: bool = False,
        negated: bool = True,
    ) -> Clause:
        """A clause of about ``budget`` words.

        It may have a time if ``timed``, a place if ``placed`` and a negation if ``negated``; with ``action`` it must
        say what somebody does.
        """
        tense = tense or self.choice(TENSES)
        if budget >= 10 and not action and tense == "present" and self.chance(0.75 if budget >= 14 else 0.5):
            return self.saying(budget)
        kinds = ["transitive"] * 5 + ["intransitive"] * 2 + ["predicate"] * 2 + ["giving"] * 2
        kind = self.choice(kinds[: 7 if action else 9 if budget < 7 else 11])
        if self.held == "future-with-recipient-pronoun":
            kind, tense = "giving", "future"
        elif self.held == "question-with-pronoun":
            kind = "transitive"
        negation = ""
        if negated and self.chance(0.1 if question else 0.25):
            negation = "never" if self.chance(0.25) and not question else "not"
        # Subjects of questions and negations have no "a", "some" or number, whose scope would be unclear.
        definite = question or bool(negation)
        if kind == "predicate":
            return self.predicate(budget, tense, negation, definite)
        if kind == "giving":
            return self.giving(budget, tense, negation, definite)
        verbs = INTRANSITIVE if kind == "intransitive" else TRANSITIVE
        if self.held == "question-with-pronoun":
            verbs = tuple(verb for verb in verbs if "person" in verb.objects)
        elif action:
            verbs = tuple(verb for verb in verbs if verb.english not in LASTING)
        verb = self.choice([verb for verb in verbs if self.tense_for(verb, tense) == tense])
        spare = budget - (6 if kind == "transitive" else 4) - (tense == "future") * 3 - (negation == "not") * 2
        self.past = tense == "past"
        place, time, adverb = None, "", ""
        if placed and spare >= 3 and self.chance(0.5 if kind == "transitive" else 0.8):
            place = self.place(spare)
            spare -= 3
        if timed and spare >= 1 and self.chance(0.2):
            time = self.choice(tuple(TIMES[tense]))
            spare -= 1
        share = self.random.randint(0, max(spare, 0)) if kind == "transitive" else spare
        subject = self.subject(verb.subjects, 2 + min(share, 9), definite=definite)
        if tense == "present" and negation != "never" and verb.english not in LASTING and self.chance(0.15):
            adverb = self.choice(("often", "always", "sometimes"))
            if negation and adverb == "sometimes":
                adverb = "often"
        thing = None
        if kind == "transitive":
            thing = self.object(verb, 2 + spare - share, subject, negated=bool(negation), question=question)
        return Clause(subject, verb, thing, tense=tense, negation=negation, adverb=adverb, place=place, time=time)

    def saying(self, budget: int) -> Clause:
        """A clause with another one in it, in the indicative also in French: "the teacher thinks that …"."""
        verb = self.choice(SAYING)
        share = self.random.randint(2, max(2, min(8, budget - 8)))
        self.past = False
        subject = self.subject(("person",), share)
        self.alone = False
        return Clause(subject, verb, content=self.clause(budget - share - 2))

    def predicate(self, budget: int, tense: str, negation: str, definite: bool) -> Clause:
        """A clause with be: "the soup is hot", "the man was hungry", "the book is on the table"."""
        self.past = tense == "past"
        spare = budget - 4 - (tense == "future") * 3 - (negation == "not")
        if tense == "future" or self.chance(0.25):
            subject = self.subject(ANIMATE, 2 + spare, definite=definite)
            return Clause(subject, BE, predicate=self.choice(tuple(IDIOMS)), tense=tense, negation=negation)
        if self.chance(0.3):
            noun = self.choice(nouns_of(("thing", "clothes", "text", "animal", "fruit")))
            where = self.place(3, noun)
            phrase = self.noun_phrase(noun, spare, definite=definite, flat=True)
            return Clause(phrase, BE, predicate=where, tense=tense, negation=negation)
        noun = self.choice([n for n in NOUNS.values() if n.classes != {"venue"}])
        adjective = self.choice([a for a in adjectives_of(noun, False) if a.english not in ("new", "good", "long")])
        phrase = self.noun_phrase(noun, 2 + spare, definite=definite, bare=True)
        return Clause(phrase, BE, predicate=adjective, tense=tense, negation=negation)

    def giving(self, budget: int, tense: str, negation: str, definite: bool) -> Clause:
        """A clause with a recipient: "the girl gives the letter to the king", or "… to him"; French puts lui first."""
        verb = self.choice(GIVING)
        self.past = tense == "past"
        spare = budget - 8 - (tense == "future") * 3 - (negation == "not") * 2
        subject = self.subject(verb.subjects, 2 + min(max(spare, 0), 8), definite=definite)
        thing = self.choice(nouns_of(verb.objects))
        phrase = self.noun_phrase(thing, 3 + spare // 2, object=True, negated=bool(negation), flat=True, who=subject)
        recipient: NounPhrase | Pronoun
        if self.held == "future-with-recipient-pronoun" or (tense != "future" and self.chance(0.5)):
            recipient = Pronoun(self.choice(self.others(subject)))
        else:
            recipient = self.noun_phrase(self.choice(nouns_of(("person",))), 2, object=True, flat=True)
        return Clause(subject, verb, phrase, recipient, tense=tense, negation=negation)
