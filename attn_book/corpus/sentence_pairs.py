"""Tasks over two texts A and B: is B the next sentence, and does B follow from A (where only word order decides)?"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from attn_book.corpus.clauses import write
from attn_book.corpus.grammar import check_even, stream
from attn_book.corpus.lexicon import ADJECTIVES, BE, LARGE_PLACES, POSSESS, TIMES, VERBS, Noun, adjectives_of, nouns_of
from attn_book.corpus.paragraphs import PASSING, Paragraph
from attn_book.corpus.trees import Clause, Joined, NounPhrase, Place, Pronoun, Sentence
from attn_book.data.pairs import Pair
from attn_book.pretrain import Text
from attn_core.contract import check_integer, kind, shown


@dataclass(frozen=True)
class NextSentence:
    """The beginning of a paragraph and the rest of one; ``follows`` says whether they belong to the same paragraph."""

    first: tuple[Pair, ...]
    second: tuple[Pair, ...]
    follows: bool


def next_sentences(paragraphs: Sequence[Paragraph], *, seed: int = 0) -> tuple[NextSentence, ...]:
    """One example from each paragraph, cut at random: half with their own rest, half with that of another paragraph.

    A wrong rest has as many sentences as the right one, comes from a paragraph of the same length, and begins with a
    sentence that this paragraph does not have, so neither length nor position gives it away. Another seed gives other
    cuts and other wrong rests.

    Raises:
        ValueError: if there are fewer than two paragraphs, one has a single sentence, no wrong rest exists, or the seed
            is not an integer of at least 0.

    Source: Devlin et al. 2018, section 3.1, task 2, whose "sentences" are stretches of text too.
    """
    check_integer("seed", seed, at_least=0)
    if not isinstance(paragraphs, Sequence):
        raise ValueError(f"paragraphs: expected two or more, got {kind(paragraphs)}")
    if len(paragraphs) < 2:
        raise ValueError(f"paragraphs: expected two or more, got {len(paragraphs)}")
    alike: dict[int, list[Paragraph]] = {}
    for paragraph in paragraphs:
        if not isinstance(paragraph, Paragraph) or len(paragraph.sentences) < 2:
            raise ValueError(f"paragraphs: expected Paragraphs of two sentences or more, got {paragraph!r}")
        alike.setdefault(len(paragraph.sentences), []).append(paragraph)
    random = stream("next sentences", seed)
    answers = [number % 2 == 0 for number in range(len(paragraphs))]
    random.shuffle(answers)
    examples = []
    for paragraph, follows in zip(paragraphs, answers, strict=True):
        own = paragraph.sentences
        at = random.randrange(1, len(own))
        second = own[at:] if follows else _wrong(random, own, at, alike[len(own)])
        examples.append(NextSentence(own[:at], second, follows))
    return tuple(examples)


def _wrong(random: Random, own: tuple[Pair, ...], at: int, others: list[Paragraph]) -> tuple[Pair, ...]:
    """The rest of another paragraph, whose first sentence is not in this one in either language."""
    said = {words for pair in own for words in (pair.source, pair.target)}
    for _ in range(1_000):
        rest = random.choice(others).sentences[at:]
        if said.isdisjoint((rest[0].source, rest[0].target)):
            return rest
    raise ValueError("paragraphs: expected some that differ, got none whose rest begins with a new sentence")


@dataclass(frozen=True)
class Entailment:
    """A premise, a hypothesis, and whether the hypothesis follows from the premise or contradicts it.

    ``family`` names the kind of premise; ``combinations`` holds (noun, what it does or is), in English.
    """

    premise: Pair
    hypothesis: Pair
    follows: bool
    family: str
    combinations: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class EntailmentCorpus:
    """Examples in twins: one hypothesis, two premises with the same words in another order, and opposite labels."""

    train: tuple[Entailment, ...]
    valid: tuple[Entailment, ...]
    test: tuple[Entailment, ...]
    combinations: tuple[Entailment, ...]


def entailments(
    *, train: int = 4_000, valid: int = 1_000, test: int = 1_000, combinations: int = 1_000, seed: int = 0
) -> EntailmentCorpus:
    """Generate the given number of examples for each part, the same for the same seed.

    Examples 2i and 2i + 1 are twins: they share their hypothesis and, in both languages, the words of their premises,
    but one entails and the other contradicts, so a bag of words is right half the time. The kinds of premise alternate,
    and only twins have premises with the same words. In ``combinations`` each premise has a noun with a verb, a place
    or, if the hypothesis is about one, an adjective that no other part has with this noun. Each part has random numbers
    of its own: a part's size changes no part before it, and a smaller part is the beginning of a larger one.

    Raises:
        ValueError: if a size is not an even integer of at least 0, or the seed is not an integer of at least 0.
    """
    sizes = {"train": train, "valid": valid, "test": test, "combinations": combinations}
    check_even(sizes)
    check_integer("seed", seed, at_least=0)
    seen: set[tuple[str, ...]] = set()
    parts = {}
    for part, size in sizes.items():
        random = stream(f"entailments {part}", seed)
        chosen: list[Entailment] = []
        while len(chosen) < size:
            family = FAMILIES[len(chosen) // 2 % len(FAMILIES)]
            twins = _twins(random, family, held=part == "combinations")
            if not twins:
                continue
            premise = twins[0].premise
            bags = {tuple(sorted(premise.source)), tuple(sorted(premise.target))}
            if bags.isdisjoint(seen):
                seen |= bags
                chosen.extend(twins)
        parts[part] = tuple(chosen)
    return EntailmentCorpus(**parts)


def is_held(noun: str, other: str) -> bool:
    """Whether this combination is kept for the part ``combinations``: about one in six."""
    return zlib.crc32(f"{noun} {other}".encode()) % 6 == 0


@dataclass(frozen=True)
class _Claim:
    """Two premises that exchange two nouns, a hypothesis, whether it holds under the first, and its combined words."""

    premises: tuple[Clause | Joined, Clause | Joined]
    hypothesis: Clause
    holds: bool
    combined: tuple[str, ...]


OPPOSITES = (("happy", "sad"), ("young", "old"), ("big", "small"), ("black", "white"), ("white", "grey"))
ENCOUNTERS = ("see", "hear", "look-at", "help", "wait-for", "call", "listen-to")
EXCLUSIVE = (*(("sleep", verb) for verb in ("work", "run", "dance", "walk", "play", "sing")), ("laugh", "cry"))


def _twins(random: Random, family: Family, *, held: bool) -> tuple[Entailment, Entailment] | None:
    """Two examples, or None if the draw does not fit."""
    animate = "animal" if family in (_follow, _attribute) and random.random() < 0.4 else "person"
    people = [noun for noun in nouns_of((animate,)) if "kin" not in noun.classes]
    a = random.choice(people)
    b = random.choice([noun for noun in people if noun is not a and noun.gender == a.gender])
    tense = random.choice(("present", "past"))
    claim = family(random, _described(random, a), _described(random, b), tense)
    if claim is None:
        return None
    combined = frozenset((noun.english[0], word) for noun in (a, b) for word in claim.combined)
    if any(is_held(*one) for one in combined) != held:
        return None
    opening = random.choice(tuple(TIMES[tense])) if random.random() < 0.3 else ""
    first, second = (write(Sentence(premise, opening=opening)) for premise in claim.premises)
    if any(sorted(one) != sorted(two) for one, two in ((first.source, second.source), (first.target, second.target))):
        return None  # an article or a contraction that would give the answer away: au roi, à l' homme
    hypothesis = claim.hypothesis
    denied = random.random() < 0.5
    said = write(Sentence(replace(hypothesis, negation="not") if denied else hypothesis))
    name = family.__name__.removeprefix("_").replace("_", "-")
    twins = [
        Entailment(first, said, claim.holds != denied, name, combined),
        Entailment(second, said, claim.holds == denied, name, combined),
    ]
    random.shuffle(twins)
    return twins[0], twins[1]


def _described(random: Random, noun: Noun) -> NounPhrase:
    excluded = {*sum(OPPOSITES, ()), *PASSING}
    fitting = [adjective for adjective in adjectives_of(noun, False) if adjective.english not in excluded]
    return NounPhrase("the", noun, adjectives=(random.choice(fitting),) if random.random() < 0.35 else ())


def _named(phrase: NounPhrase) -> NounPhrase:
    return NounPhrase("the", phrase.noun)


def _thing(random: Random, *classes: str) -> NounPhrase:
    return NounPhrase("the", random.choice(nouns_of(classes)))


def _has(random: Random, a: NounPhrase, b: NounPhrase, thing: NounPhrase, owner: NounPhrase) -> tuple[Clause, bool]:
    """A hypothesis that a or b has the thing, and whether that is true of its owner."""
    who = random.choice((a, b))
    return Clause(_named(who), POSSESS, _named(thing), time="now" if random.random() < 0.5 else ""), who is owner


def _give(random: Random, a: NounPhrase, b: NounPhrase, tense: str) -> _Claim:
    """A gives the key to B: B has it."""
    verb = random.choice(("give", "send"))
    thing = _thing(random, "text", "clothes", *(("thing", "fruit") if verb == "give" else ()))
    one, two = (Clause(x, VERBS[verb], thing, y, tense=tense) for x, y in ((a, b), (b, a)))
    return _Claim((one, two), *_has(random, a, b, thing, b), (verb,))


def _steal(random: Random, a: NounPhrase, b: NounPhrase, tense: str) -> _Claim:
    """A steals B's hat: A has it."""
    verb = random.choice(("steal", "find"))
    thing = _thing(random, "clothes", *(("fruit", "meal") if verb == "steal" else ("thing", "container")))
    one, two = (Clause(x, VERBS[verb], replace(thing, owner=y), tense=tense) for x, y in ((a, b), (b, a)))
    return _Claim((one, two), *_has(random, a, b, thing, a), (verb,))


def _find(random: Random, a: NounPhrase, b: NounPhrase, tense: str) -> _Claim:
    """A loses the key and B finds it: B has it."""
    thing = _thing(random, "thing", "clothes")
    it = Pronoun("it", thing.noun.gender)
    one, two = (
        Joined(Clause(x, VERBS["lose"], thing, tense=tense), "and", Clause(y, VERBS["find"], it, tense=tense))
        for x, y in ((a, b), (b, a))
    )
    return _Claim((one, two), *_has(random, a, b, thing, b), ("lose", "find"))


def _follow(random: Random, a: NounPhrase, b: NounPhrase, tense: str) -> _Claim:
    """A follows B: A is behind B, B is in front of A."""
    one, two = (Clause(x, VERBS["follow"], y, tense=tense) for x, y in ((a, b), (b, a)))
    where, (x, y) = random.choice(("behind", "in front of")), random.sample((a, b), 2)
    said = Clause(_named(x), BE, predicate=Place(where, _named(y)), tense=tense)
    return _Claim((one, two), said, (x is a) == (where == "behind"), ("follow",))


def _attribute(random: Random, a: NounPhrase, b: NounPhrase, tense: str) -> _Claim | None:
    """The black cat sees the white dog: the cat is black, the dog is white."""
    verb = random.choice([verb for verb in ENCOUNTERS if not b.noun.classes.isdisjoint(VERBS[verb].objects)])
    pair = [ADJECTIVES[name] for name in random.choice(OPPOSITES)]
    if any(adjective.classes.isdisjoint(phrase.noun.classes) for adjective in pair for phrase in (a, b)):
        return None
    random.shuffle(pair)
    one, two = (
        Clause(replace(a, adjectives=(p,)), VERBS[verb], replace(b, adjectives=(q,)), tense=tense)
        for p, q in (pair, pair[::-1])
    )
    who, what = random.choice((a, b)), random.choice(pair)
    said = Clause(_named(who), BE, predicate=what, tense=tense)
    return _Claim((one, two), said, (who is a) == (what is pair[0]), tuple(adjective.english for adjective in pair))


def _activity(random: Random, a: NounPhrase, b: NounPhrase, tense: str) -> _Claim:
    """A sleeps and B works: B does not sleep."""
    verbs = random.sample(random.choice(EXCLUSIVE), 2)
    link = random.choice(("and", "but", "while") if tense == "present" else ("and", "but"))
    return _two(random, a, b, [Clause(None, VERBS[verb], tense=tense) for verb in verbs], link, tuple(verbs))


def _place(random: Random, a: NounPhrase, b: NounPhrase, tense: str) -> _Claim:
    """A is in the garden and B is at the station: B is not in the garden."""
    places = random.sample([(where, noun) for where, classes in LARGE_PLACES for noun in nouns_of(classes)], 2)
    clauses = [Clause(None, BE, predicate=Place(w, NounPhrase("the", n)), tense=tense) for w, n in places]
    return _two(random, a, b, clauses, random.choice(("and", "but")), tuple(noun.english[0] for _, noun in places))


def _wear(random: Random, a: NounPhrase, b: NounPhrase, tense: str) -> _Claim:
    """A wears the hat and B wears the coat: B does not wear the hat."""
    things = random.sample(nouns_of(("clothes",)), 2)
    clauses = [Clause(None, VERBS["wear"], NounPhrase("the", noun), tense=tense) for noun in things]
    return _two(random, a, b, clauses, random.choice(("and", "but")), ("wear",))


def _two(
    random: Random, a: NounPhrase, b: NounPhrase, clauses: list[Clause], link: str, combined: tuple[str, ...]
) -> _Claim:
    """Two clauses that exclude each other, one about a and one about b, in both assignments."""
    first, second = clauses
    one, two = (Joined(replace(first, subject=x), link, replace(second, subject=y)) for x, y in ((a, b), (b, a)))
    who, what = random.choice((a, b)), random.choice(clauses)
    said = replace(what, subject=_named(who))
    return _Claim((one, two), said, (who is a) == (what is first), combined)


Family = Callable[[Random, NounPhrase, NounPhrase, str], _Claim | None]
FAMILIES: tuple[Family, ...] = (_give, _steal, _find, _follow, _attribute, _activity, _place, _wear)


def two_part_texts(paragraphs: Sequence[Paragraph], *, seed: int = 0) -> Callable[[int], Sequence[Text]]:
    """Texts for pretraining: the English words of each paragraph, cut between two sentences, without a class.

    Each epoch cuts at other positions. A paragraph of one sentence stays whole.

    Raises:
        ValueError: if something is not a ``Paragraph``, or the seed is not an integer of at least 0.
    """
    check_integer("seed", seed, at_least=0)
    if not isinstance(paragraphs, Sequence) or not all(isinstance(one, Paragraph) for one in paragraphs):
        raise ValueError(f"paragraphs: expected a sequence of Paragraphs, got {shown(paragraphs)}")

    def texts(number: int) -> Sequence[Text]:
        random = Random((seed << 32) + number)
        cuts = [random.randrange(1, max(2, len(one.sentences))) for one in paragraphs]
        return [
            Text(_english(one.sentences[:at]), _english(one.sentences[at:]))
            for one, at in zip(paragraphs, cuts, strict=True)
        ]

    return texts


def next_sentence_texts(paragraphs: Sequence[Paragraph], *, seed: int = 0) -> Callable[[int], Sequence[Text]]:
    """Texts for pretraining: the beginning of each paragraph, and its rest (class 1) or that of another one (class 0).

    Each epoch cuts at other positions and draws other rests. The texts have as many words as those of
    ``two_part_texts``.

    Raises:
        ValueError: when an epoch is drawn, as ``next_sentences`` does.
    """

    def texts(number: int) -> Sequence[Text]:
        return [
            Text(_english(one.first), _english(one.second), int(one.follows))
            for one in next_sentences(paragraphs, seed=(seed << 16) + number)
        ]

    return texts


def _english(sentences: Sequence[Pair]) -> tuple[str, ...]:
    """The English words of the sentences, one after another."""
    return tuple(word for pair in sentences for word in pair.source)
