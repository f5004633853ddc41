"""Short paragraphs in English and French, each with a setting, a small cast and one story."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from attn_book.corpus.clauses import write
from attn_book.corpus.grammar import stream
from attn_book.corpus.lexicon import (
    ADJECTIVES,
    BE,
    IDIOMS,
    INTRANSITIVE,
    LARGE_PLACES,
    NOUNS,
    POSSESS,
    SMALL_PLACES,
    STATES,
    TIMES,
    VERBS,
    Adjective,
    Noun,
    adjectives_of,
    nouns_of,
)
from attn_book.corpus.trees import Clause, Joined, NounPhrase, Place, Pronoun, Sentence, Several
from attn_book.data.pairs import Pair
from attn_core.contract import check_integer

PASSING = (*STATES, "new", "good", "long")
"""Adjectives that cannot describe somebody through a whole story."""
ACTIVITIES = frozenset(INTRANSITIVE)

# name | classes of x | of y | of t | steps: subject verb object recipient; "they" are x and y; "be *" is any adjective.
# A step with @ may name a place; a step with > is a consequence of the one before it and may only follow it directly.
STORIES_TABLE = """
lost | person | person | thing clothes | x lose t @, > x not-have t, x look-for t @, x be sad, y not-find t, y find t @,
    > y have t, y give t x, > x have t, x be happy
hungry | person | person | fruit meal | x be hungry, x buy t @, x taste t, t be delicious, y be hungry, y see x,
    x give t y, > y have t, y eat t, y be happy
thirsty | person | person pet | drink | x be thirsty, y be thirsty, x taste t, t be *, y look-at x, x drink t,
    y not-drink t, x be tired, x sleep @, y laugh
letter | person | person | text | x write t @, x not-read t, x send t y, > y have t, > x not-have t, y read t @, y be *,
    y hide t @, they laugh
broken | person | person | breakable | x break t @, y hear x, y call x, x hide t @, x be afraid, y find t @, > y have t,
    y be sad, y cry, x help y
clothes | person | person | clothes | x buy t @, x wash t, x wear t, t be *, y look-at x, y steal t, > y have t,
    y not-wear t, x look-for t @, x cry
thief | person | person | fruit clothes meal | y sleep, x steal t @, > x have t, y see x, y follow x, > y be behind x,
    x run, x hide t @, y find t @, > y have t, y be happy
meeting | person | person | | x wait-for y @, y be tired, y call x, y be behind x, x listen-to y, y sing, they dance,
    x laugh, y walk, x follow y, > y be in-front-of x
work | person | person | | x work @, y sleep, y play, x be tired, y look-at x, y help x, x sleep, y work, y dance,
    x be hungry
vehicle | person | person | vehicle | x buy t, > x have t, x wash t, t be *, y look-at t, y hear t, y follow t,
    y wait-for x, x call y, y be happy
move | person | person | furniture container | x buy t @, x push t, t be *, y help x, y push t,
    x be tired, y sleep, x look-at t
box | person | person | container | x find t @, x open t, t be *, y see x, y be curious, y open t,
    y steal t, > y have t, x call y
pet | person | animal | | x look-for y @, y sleep @, x find y @, y run, x follow y, > x be behind y, y be afraid,
    y play, x be happy, y be tired
gift | person | person | thing clothes | x find t @, > x have t, x give t y, > y have t, y be happy, y lose t @,
    x be sad, x look-for t @, t be *, they laugh
hunt | animal | animal | | x see y, x follow y, > x be behind y, y hear x, > y be in-front-of x, y be afraid, y run,
    x be hungry, x be tired, x sleep @, y play
"""


@dataclass(frozen=True, slots=True)
class _Step:
    subject: str
    verb: str
    rest: tuple[str, ...] = ()
    negated: bool = False
    placed: bool = False
    tied: bool = False


def _step(text: str) -> _Step:
    words = text.split()
    tied, placed = words[0] == ">", words[-1] == "@"
    subject, verb, *rest = words[tied : len(words) - placed]
    return _Step(subject, verb.removeprefix("not-"), tuple(rest), verb.startswith("not-"), placed, tied)


def _stories() -> tuple[tuple[str, dict[str, tuple[str, ...]], tuple[_Step, ...]], ...]:
    stories = []
    for row in STORIES_TABLE.replace(",\n   ", ",").strip().splitlines():
        name, *classes, steps = (column.strip() for column in row.split("|"))
        roles = {role: tuple(kind.split()) for role, kind in zip("xyt", classes, strict=True) if kind}
        stories.append((name, roles, tuple(_step(text) for text in steps.split(","))))
    return tuple(stories)


STORIES = _stories()


@dataclass(frozen=True)
class Paragraph:
    """Sentences that belong together; ``cast`` and ``setting`` are English nouns, ``story`` names the kind of story.

    Raises:
        ValueError: if there are no sentences, or one is not a ``Pair``.
    """

    sentences: tuple[Pair, ...]
    cast: tuple[str, ...] = ()
    setting: str = ""
    story: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.sentences, tuple) or not self.sentences:
            raise ValueError(f"sentences: expected a non-empty tuple of pairs, got {self.sentences!r}")
        for pair in self.sentences:
            if not isinstance(pair, Pair):
                raise ValueError(f"sentences: expected Pair objects, got {pair!r}")

    @cached_property
    def source(self) -> tuple[str, ...]:
        """All English words, in order."""
        return tuple(word for pair in self.sentences for word in pair.source)

    @cached_property
    def target(self) -> tuple[str, ...]:
        """All French words, in order."""
        return tuple(word for pair in self.sentences for word in pair.target)

    @cached_property
    def sentence_numbers(self) -> tuple[int, ...]:
        """For each word of ``source``, the number of its sentence, from 0."""
        return tuple(number for number, pair in enumerate(self.sentences) for _ in pair.source)

    def reversed(self) -> Paragraph:
        """The same paragraph with French as the source."""
        return replace(self, sentences=tuple(pair.reversed() for pair in self.sentences))


@dataclass(frozen=True)
class ParagraphCorpus:
    """Paragraphs, disjoint between parts."""

    train: tuple[Paragraph, ...]
    valid: tuple[Paragraph, ...]
    test: tuple[Paragraph, ...]


def paragraph_corpus(*, train: int = 20_000, valid: int = 1_000, test: int = 1_000, seed: int = 0) -> ParagraphCorpus:
    """Generate paragraphs of 3 to 6 sentences, the given number for each part, the same for the same seed.

    No paragraph occurs twice, in either language. Each part has random numbers of its own: a part's size changes no
    part before it, and a smaller part is the beginning of a larger one.

    Raises:
        ValueError: if a size or the seed is not an integer of at least 0.
    """
    sizes = {"train": train, "valid": valid, "test": test}
    for name, value in (*sizes.items(), ("seed", seed)):
        check_integer(name, value, at_least=0)
    seen: set[tuple[str, ...]] = set()
    parts = {}
    for part, size in sizes.items():
        random = stream(f"paragraphs {part}", seed)
        chosen: list[Paragraph] = []
        while len(chosen) < size:
            paragraph = _tell(random)
            if paragraph.source not in seen and paragraph.target not in seen:
                seen.update((paragraph.source, paragraph.target))
                chosen.append(paragraph)
        parts[part] = tuple(chosen)
    return ParagraphCorpus(**parts)


class _Teller:
    """Tells the steps of one story: a new role gets a noun phrase, a known one often a pronoun."""

    def __init__(self, random: Random, nouns: dict[str, Noun], tense: str) -> None:
        self.random, self.nouns, self.tense = random, nouns, tense
        self.known: dict[str, NounPhrase] = {}
        self.traits: dict[str, Adjective] = {}
        words = [self.pronoun(role) for role in nouns]
        self.clear = {role for role, word in zip(nouns, words, strict=True) if words.count(word) == 1}

    def pronoun(self, role: str) -> str:
        noun = self.nouns[role]
        return ("she" if noun.gender == "f" else "he") if "person" in noun.classes else "it"

    def trait(self, role: str) -> Adjective:
        """The one adjective that describes the role through the whole story."""
        fitting = [a for a in adjectives_of(self.nouns[role], False) if a.english not in PASSING]
        return self.traits.setdefault(role, self.random.choice(fitting))

    def spelled(self, role: str, *, subject: bool = False) -> NounPhrase:
        noun, first, roll = self.nouns[role], self.known.get(role), self.random.random()
        if first is not None:
            determiner = first.determiner if "kin" in noun.classes else "this" if roll < 0.15 else "the"
            return NounPhrase(determiner, noun, adjectives=first.adjectives if roll > 0.7 else ())
        if "kin" in noun.classes:  # undescribed: mon beau frère would be another relative
            return self.known.setdefault(role, NounPhrase("my" if roll < 0.6 else "our", noun))
        determiner = "the" if subject and noun.mass or roll < 0.5 else "some" if noun.mass else "a"
        adjectives = (self.trait(role),) if self.random.random() < 0.4 else ()
        return self.known.setdefault(role, NounPhrase(determiner, noun, adjectives=adjectives))

    def mention(self, role: str, *, subject: bool = False) -> NounPhrase | Pronoun:
        """The role as a pronoun, where it is known and the pronoun fits no other role, or spelled out."""
        if role in self.known and role in self.clear and self.random.random() < 0.65:
            return Pronoun(self.pronoun(role), self.nouns[role].gender)
        return self.spelled(role, subject=subject)

    def both(self) -> Several | Pronoun:
        if {"x", "y"} <= self.known.keys() and self.random.random() < 0.8:
            return Pronoun("they", "f" if self.nouns["x"].gender == self.nouns["y"].gender == "f" else "m")
        return Several(self.spelled("x"), self.spelled("y"))

    def clause(self, step: _Step, place: Place | None, *, shared: bool = False) -> Clause:
        """A step as a clause; with ``shared`` it has no subject."""
        subject = None
        if not shared:
            subject = self.both() if step.subject == "they" else self.mention(step.subject, subject=True)
        verb = VERBS[step.verb]
        negation = "not" if step.negated or (verb in ACTIVITIES and self.random.random() < 0.15) else ""
        if verb is BE:
            predicate: Adjective | str | Place
            if len(step.rest) == 2:
                predicate = Place(step.rest[0].replace("-", " "), self.spelled(step.rest[1]))
            elif step.rest == ("*",):
                predicate = self.trait(step.subject)
            else:
                predicate = step.rest[0] if step.rest[0] in IDIOMS else ADJECTIVES[step.rest[0]]
            return Clause(subject, BE, predicate=predicate, tense=self.tense, negation=negation)
        object = self.mention(step.rest[0]) if step.rest else None
        recipient = self.mention(step.rest[1]) if len(step.rest) == 2 else None
        owner = "y" if step.subject == "x" else "x"
        taken = step.verb in ("steal", "find") and step.rest == ("t",) and owner in self.known
        if taken and isinstance(object, NounPhrase) and self.random.random() < 0.5:
            object = NounPhrase("the", object.noun, owner=self.spelled(owner))
        if verb is POSSESS:
            return Clause(subject, verb, object, tense="present", negation=negation, time="now")
        adverb = "quickly" if step.verb in ("run", "walk") and not negation and self.random.random() < 0.1 else ""
        return Clause(subject, verb, object, recipient, None, None, self.tense, negation, adverb, place)

    def joined(self, first: Clause, step: _Step, after: _Step) -> Joined:
        """Two steps in one sentence; the second has no subject if the first has the same."""
        if step.subject == after.subject:
            return Joined(first, "and", self.clause(after, None, shared=True))
        second = self.clause(after, None)
        calm = self.tense == "present" and not first.negation and not second.negation
        links = ("while", "and", "but") if calm and second.verb in ACTIVITIES else ("and", "but")
        return Joined(first, self.random.choice(links), second)

    def scene(self, kind: int, setting: Place, told: list[_Step]) -> Sentence:
        """The first sentence, which names the setting; with kind 0 it is the first step."""
        times = tuple(TIMES[self.tense])
        time = self.random.choice(times) if self.random.random() < 0.3 else ""
        if kind == 0:
            return Sentence(self.clause(told.pop(0), None), opening=setting)
        if kind == 1:
            x, y = self.spelled("x"), self.spelled("y")
            return Sentence(Clause(x, VERBS["see"], y, tense=self.tense, place=setting, time=time))
        who = self.both() if kind == 2 else self.spelled("x")
        return Sentence(Clause(who, BE, predicate=setting, tense=self.tense, time=time))

    def place(self, step: _Step, setting: Place) -> Place | None:
        """The setting, a small place for a thing, or mostly nothing."""
        roll = self.random.random()
        if step.placed and step.verb in ("find", "hide", "look-for") and step.rest == ("t",) and roll > 0.6:
            preposition, classes = self.random.choice(SMALL_PLACES)
            return Place(preposition, NounPhrase("the", self.random.choice(nouns_of(classes))))
        return setting if step.placed and roll < 0.2 else None


def _tell(random: Random) -> Paragraph:
    """One paragraph: a scene, then some steps of a story in their order, sometimes two in one sentence."""
    story, roles, steps = random.choice(STORIES)
    nouns: dict[str, Noun] = {}
    for role, classes in roles.items():
        free = [noun for noun in nouns_of(classes) if noun not in nouns.values()]
        if role == "y" and random.random() < 0.8:
            free = [noun for noun in free if noun.gender != nouns["x"].gender]
        nouns[role] = random.choice(free)
    teller = _Teller(random, nouns, random.choice(("present", "past")))
    preposition, classes = random.choice(LARGE_PLACES)
    setting = Place(preposition, NounPhrase("the", random.choice(nouns_of(classes))))
    count, scene, joins = random.randint(3, 6), random.randrange(4), random.random() < 0.3
    steps_told = count - (scene > 0) + joins
    chosen: list[int] = []
    while not chosen or any(steps[i].tied and i - 1 not in chosen for i in chosen):
        chosen = sorted(random.sample(range(len(steps)), steps_told))
    told = [steps[i] for i in chosen]
    sentences = [teller.scene(scene, setting, told)]
    while told:
        step = told.pop(0)
        first = teller.clause(step, teller.place(step, setting))
        plain = all(s.verb not in ("be", "have") and s.subject != "they" and not s.placed for s in (step, *told[:1]))
        if len(sentences) + len(told) >= count and told and plain:
            sentences.append(Sentence(teller.joined(first, step, told.pop(0))))
        else:
            sentences.append(Sentence(first))
    pairs = tuple(write(sentence, structure=story) for sentence in sentences[:count])
    cast = tuple(noun.english[0] for noun in nouns.values())
    return Paragraph(pairs, cast, setting.noun_phrase.noun.english[0], story)


ANIMATE = frozenset({"person", "animal"})
EITHER_WAY = frozenset({"near", "front", "behind"})
"""Relations that make sense in both directions (the man behind the castle): sentences with them are left out."""


@dataclass(frozen=True)
class Plausible:
    """An English sentence, and whether it is plausible: the grammar's own, and not one with two nouns exchanged."""

    words: tuple[str, ...]
    plausible: bool


def plausible_sentences(
    paragraphs: Sequence[Paragraph], *, without: Sequence[Paragraph] = (), seed: int = 0
) -> tuple[Plausible, ...]:
    """Sentences that name an animate noun and a thing, each beside a twin in which the two are exchanged.

    For example "the boy found the mirror" and "the mirror found the boy". Examples 2i and 2i + 1 have the same words,
    so a bag of words is right half the time. The exchanged nouns follow the same article, so that no article gives the
    twin away. Every sentence of ``paragraphs`` occurs once, in their order, unless it is in ``without``. The seed
    chooses the nouns where there are several, and which twin comes first.

    Raises:
        ValueError: if something is not a ``Paragraph``, or the seed is not an integer of at least 0.
    """
    check_integer("seed", seed, at_least=0)
    for name, argument in (("paragraphs", paragraphs), ("without", without)):
        for paragraph in argument:
            if not isinstance(paragraph, Paragraph):
                raise ValueError(f"{name}: expected Paragraphs, got {paragraph!r}")
    random = stream("plausible sentences", seed)
    seen = {pair.source for paragraph in without for pair in paragraph.sentences}
    examples: list[Plausible] = []
    for pair in (pair for paragraph in paragraphs for pair in paragraph.sentences):
        exchanges = _exchanges(pair.source)
        if pair.source in seen or not exchanges:
            continue
        i, j = random.choice(exchanges)
        words = list(pair.source)
        words[i], words[j] = words[j], words[i]
        seen.add(pair.source)
        twins = [Plausible(pair.source, True), Plausible(tuple(words), False)]
        random.shuffle(twins)
        examples += twins
    return tuple(examples)


def _exchanges(words: Sequence[str]) -> list[tuple[int, int]]:
    """The positions of an animate noun and of a thing, after the same article, whose exchange makes no sense."""
    if not EITHER_WAY.isdisjoint(words):
        return []
    nouns = [i for i in range(1, len(words)) if words[i] in NOUNS]
    return [
        (i, j)
        for i in nouns
        for j in nouns
        if words[i - 1] == words[j - 1] and _animate(words[i]) and not _animate(words[j])
    ]


def _animate(noun: str) -> bool:
    return not ANIMATE.isdisjoint(NOUNS[noun].classes)
