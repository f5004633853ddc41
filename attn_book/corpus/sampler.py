"""Draws sentences: their length, the clauses they are made of, what is kept for the structures split."""

from __future__ import annotations

from attn_book.corpus.lexicon import ADJECTIVES, NOUNS, STATES, TIMES, Adjective
from attn_book.corpus.phrase_sampler import LASTING, PhraseSampler, adjectives_of, nouns_of, verbs_with
from attn_book.corpus.tree import Agreement, Clause, Joined, NounPhrase, Pronoun, Sentence, agreement
from attn_book.corpus.verbs import BE, GIVING, IDIOMS, INTRANSITIVE, SAYING, TRANSITIVE

HELD_STRUCTURES = ("held-pair", "negated-relative", "question-with-pronoun", "future-with-recipient-pronoun")
"""What only the structures split has; the first is an adjective with a noun out of `lexicon.HELD_PAIRS`."""

TENSES = ("present",) * 5 + ("past",) * 3 + ("future",) * 2
ANIMATE = ("person", "animal")
FIRST = ("see", "find", "buy", "steal", "write", "taste")
"""What one does to a thing before anything else: one buys it and eats it."""


class Sampler(PhraseSampler):
    """Draws sentence trees from a random stream; `held` is one of `HELD_STRUCTURES` to be put in, or "".

    Lengths are steered by a budget of English words, which phrases spend and share out.
    """

    def sentence(self) -> Sentence:
        """A sentence; lengths spread from four words to about thirty-five."""
        self.alone = True
        roll = self.random.random()
        low, high = (4, 10) if roll < 0.48 else (11, 17) if roll < 0.74 else (18, 40)
        budget = self.random.randint(low, high) - 1
        if self.held == "question-with-pronoun":
            return Sentence(self.clause(budget, asked=True), question=True)
        if self.held == "future-with-recipient-pronoun":
            return Sentence(self.clause(budget))
        if budget < 16 and self.chance(0.15):
            return Sentence(self.clause(budget, asked=True), question=True)
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
        if budget < 10 or (budget < 18 and not self.chance(0.65)):
            return self.clause(budget)
        if budget >= 24 and self.chance(0.6):
            share = self.random.randint(9, budget - 10)
            first = self.body(share)
            return Joined(first, "and", self.second(budget - share - 1))
        kind = self.random.choice(("and", "but", "because", "when", "while", "shared", "taken up"))
        if kind == "taken up":
            return self.taken_up(budget)
        if kind == "because":
            return self.because(budget)
        share = self.random.randint(5, budget - 5)
        if kind == "shared":
            tense = self.random.choice(("present", "past"))
            main = self.clause(share, tense=tense, action=True, negated=False)
            return Joined(main, "and", self.same_subject(main, budget - share))
        if kind in ("when", "while"):  # in the present: with other tenses the languages differ after quand
            main = self.clause(share, tense="present", action=True, timed=False)
            other = self.second(budget - share - 1, tense="present", action=True, negated=False)
            return Joined(main, kind, other)
        tense = self.random.choice(TENSES)
        return Joined(self.clause(share, tense=tense), kind, self.second(budget - share - 1, tense=tense))

    def second(self, budget: int, *, tense: str | None = None, action: bool = False, negated: bool = True) -> Clause:
        """A clause after another one."""
        self.alone = False
        return self.clause(budget, tense=tense, action=action, negated=negated, timed=False)

    def because(self, budget: int) -> Joined:
        """ "the woman sleeps because she is tired": a reason that may be one."""
        tense = self.random.choice(("present", "past"))
        first = self.clause(budget - 4, tense=tense, action=True, timed=False)
        reasons: list[Adjective | str] = [*IDIOMS, *(ADJECTIVES[state] for state in STATES)]
        reason = self.random.choice(reasons)
        who = first.subject
        if isinstance(who, NounPhrase) and "animal" in who.noun.classes and not who.plural:
            who = self.noun_phrase(self.random.choice(nouns_of(("person",))), 2, plural=False)
        elif isinstance(who, Pronoun):
            reason = self.random.choice(tuple(IDIOMS))
        elif who is not None:
            who = self.pronoun_for(agreement(who))
        return Joined(first, "because", Clause(who, BE, predicate=reason, tense=first.tense))

    def same_subject(self, first: Clause, budget: int) -> Clause:
        """ "… and eats the bread": a second clause that shares the subject of the first."""
        subject = first.subject
        noun = subject.noun if isinstance(subject, NounPhrase) else NOUNS["man"]
        self.alone = False
        verbs = [
            verb
            for verb in verbs_with(TRANSITIVE, noun, "subject")
            if verb is not first.verb and self.tense_for(verb, first.tense) == first.tense
        ]
        verb = self.random.choice(verbs)
        return Clause(None, verb, self.object(verb, budget - 2, subject), tense=first.tense)

    def taken_up(self, budget: int) -> Joined:
        """ "the man buys the pear and eats it": it and them with what they stand for in sight."""
        tense = "past" if self.chance(0.4) else "present"
        subject = self.subject(("person",), min(budget - 8, 7))
        noun = self.random.choice(nouns_of(("thing", "fruit", "clothes", "text", "vehicle", "meal", "drink")))
        verbs = verbs_with(TRANSITIVE, noun, "object")
        first = self.random.choice([verb for verb in verbs if verb.english in FIRST])
        second = self.random.choice(
            [verb for verb in verbs if verb.english not in FIRST and self.tense_for(verb, tense) == tense]
        )
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

    def clause(
        self,
        budget: int,
        *,
        tense: str | None = None,
        asked: bool = False,
        timed: bool = True,
        placed: bool = True,
        action: bool = False,
        negated: bool = True,
    ) -> Clause:
        """A clause of about `budget` words; `asked` in a question, `action` if it must say what somebody does."""
        tense = tense or self.random.choice(TENSES)
        if budget >= 10 and not action and tense == "present" and self.chance(0.75 if budget >= 14 else 0.5):
            return self.saying(budget)
        kinds = ["transitive"] * 5 + ["intransitive"] * 2 + ["predicate"] * 2 + ["giving"] * 2
        if action:
            kinds = kinds[:7]
        elif budget < 7:
            kinds = kinds[:9]
        kind = self.random.choice(kinds)
        if self.held == "future-with-recipient-pronoun":
            kind, tense = "giving", "future"
        elif self.held == "question-with-pronoun":
            kind = "transitive"
        negation = ""
        if negated and self.chance(0.1 if asked else 0.25):
            negation = "never" if self.chance(0.25) and not asked else "not"
        # "some" and numbers are avoided in subjects of questions and negations, where their scope is unclear.
        plain = asked or bool(negation)
        if kind == "predicate":
            return self.predicate(budget, tense, negation, plain)
        if kind == "giving":
            return self.giving(budget, tense, negation, plain)
        verbs = INTRANSITIVE if kind == "intransitive" else TRANSITIVE
        if self.held == "question-with-pronoun":
            verbs = tuple(verb for verb in verbs if "person" in verb.objects)
        elif action:
            verbs = tuple(verb for verb in verbs if verb.english not in LASTING)
        verb = self.random.choice([verb for verb in verbs if self.tense_for(verb, tense) == tense])
        spare = budget - (6 if kind == "transitive" else 4) - (tense == "future") * 3 - (negation == "not") * 2
        self.past = tense == "past"
        place = time = None
        if placed and spare >= 3 and self.chance(0.5 if kind == "transitive" else 0.8):
            place = self.place(spare)
            spare -= 3
        if timed and spare >= 1 and self.chance(0.2):
            time = self.random.choice(tuple(TIMES[tense]))
            spare -= 1
        share = self.random.randint(0, max(spare, 0)) if kind == "transitive" else spare
        subject = self.subject(verb.subjects, 2 + min(share, 9), denied=plain)
        adverb = ""
        if tense == "present" and negation != "never" and verb.english not in LASTING and self.chance(0.15):
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
        share = self.random.randint(2, max(2, min(8, budget - 8)))
        self.past = False
        subject = self.subject(("person",), share)
        self.alone = False
        return Clause(
            subject,
            verb,
            content=self.clause(budget - share - 2, tense="future" if verb.english == "hope" else None),
        )

    def predicate(self, budget: int, tense: str, negation: str, plain: bool) -> Clause:
        """ "the soup is hot", "the man was hungry", "the book is on the table"."""
        self.past = tense == "past"
        spare = budget - 4 - (tense == "future") * 3 - (negation == "not")
        if tense == "future" or self.chance(0.25):
            subject = self.subject(ANIMATE, 2 + spare, denied=plain)
            return Clause(subject, BE, predicate=self.random.choice(tuple(IDIOMS)), tense=tense, negation=negation)
        if self.chance(0.3):
            noun = self.random.choice(nouns_of(("thing", "clothes", "text", "animal", "fruit")))
            where = self.place(3, noun)
            phrase = self.noun_phrase(noun, spare, denied=plain, flat=True)
            return Clause(phrase, BE, predicate=where, tense=tense, negation=negation)
        noun = self.random.choice([n for n in NOUNS.values() if n.classes != {"venue"}])
        choices = [a for a in adjectives_of(noun, False) if a.english not in ("new", "good", "long")]
        adjective = self.random.choice(choices)
        phrase = self.noun_phrase(noun, 2 + spare, denied=plain, plain=True)
        return Clause(phrase, BE, predicate=adjective, tense=tense, negation=negation)

    def giving(self, budget: int, tense: str, negation: str, plain: bool) -> Clause:
        """ "the girl gives the letter to the king" or "… to him", where French puts lui before the verb."""
        verb = self.random.choice(GIVING)
        self.past = tense == "past"
        spare = budget - 8 - (tense == "future") * 3 - (negation == "not") * 2
        subject = self.subject(verb.subjects, 2 + min(max(spare, 0), 8), denied=plain)
        thing = self.random.choice(nouns_of(verb.objects))
        phrase = self.noun_phrase(thing, 3 + spare // 2, object=True, negated=bool(negation), flat=True, who=subject)
        recipient: NounPhrase | Pronoun
        held = self.held == "future-with-recipient-pronoun"
        if held or (tense != "future" and self.chance(0.5)):
            recipient = Pronoun(self.random.choice(self.others(subject)))
        else:
            recipient = self.noun_phrase(self.random.choice(nouns_of(("person",))), 2, object=True, flat=True)
        return Clause(subject, verb, phrase, recipient, tense=tense, negation=negation)
