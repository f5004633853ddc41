"""The corpus: English sentences with their French translation and true alignment, from a grammar of our own.

Where a rule is: words in `lexicon` and `verbs`, spelling in `morphology`, agreement, contraction and elision
in `phrases`, tense and negation in `verb_phrases`, word order in `clauses`, what goes with what in
`phrase_sampler` and `sampler`, il or elle in `pronouns`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from attn_book.corpus.clauses import write
from attn_book.corpus.labels import labels
from attn_book.corpus.lexicon import ADJECTIVES, NOUNS
from attn_book.corpus.pronouns import pronoun_pairs
from attn_book.corpus.sampler import HELD_STRUCTURES, Sampler
from attn_book.corpus.tree import Clause, NounPhrase, Sentence
from attn_book.corpus.verbs import TRANSITIVE
from attn_core.data.pairs import Corpus, Pair

EXAMPLE = write(
    Sentence(
        Clause(
            NounPhrase("the", NOUNS["cat"], adjectives=(ADJECTIVES["black"],)),
            next(verb for verb in TRANSITIVE if verb.english == "drink"),
            NounPhrase("the", NOUNS["soup"], adjectives=(ADJECTIVES["hot"],)),
            negation="not",
        )
    ),
    structure="negation",
)
"""The sentence that the book carries from chapter to chapter; in no part of any corpus."""


@dataclass(frozen=True)
class GrammarCorpus(Corpus):
    """English to French pairs, disjoint between parts; what the two further parts are for is said in `corpus`."""

    structures: tuple[Pair, ...]
    pronouns: tuple[Pair, ...]


def stream(part: str, seed: int) -> Random:
    """The random stream of one part: the same on every machine, whatever the other parts are."""
    return Random(zlib.crc32(part.encode()) + (seed << 32))


def corpus(
    *,
    train: int = 24_000,
    valid: int = 1_000,
    test: int = 1_000,
    structures: int = 1_000,
    pronouns: int = 1_000,
    seed: int = 0,
) -> GrammarCorpus:
    """Write a corpus with so many pairs in each part, the same for the same seed.

    `structures` holds combinations that are nowhere in the first three parts (`sampler.HELD_STRUCTURES`),
    made of words that are; in `pronouns` French must choose il or elle by what "it" refers to.
    Each part has a stream of its own: a part's size changes no part before it, nothing changes `pronouns`,
    and a smaller part is the beginning of a larger one.

    Raises: ValueError for a size that is not an integer of 0 or more, or a seed that is not one either.
    """
    sizes = {"train": train, "valid": valid, "test": test, "structures": structures, "pronouns": pronouns}
    for name, value in (*sizes.items(), ("seed", seed)):
        if type(value) is not int or value < 0:
            raise ValueError(f"{name}: expected an integer of 0 or more, got {value!r}")
    seen = {EXAMPLE.source, EXAMPLE.target}
    regular = {part: _fresh(_regular(stream(part, seed)), sizes[part], seen) for part in ("train", "valid", "test")}
    return GrammarCorpus(
        **regular,
        structures=_fresh(_held(stream("structures", seed)), structures, seen),
        pronouns=_fresh(pronoun_pairs(stream("pronouns", seed)), pronouns, {EXAMPLE.source, EXAMPLE.target}),
    )


def _fresh(pairs: Iterator[Pair], size: int, seen: set[tuple[str, ...]]) -> tuple[Pair, ...]:
    """The first `size` pairs of which neither side has been seen; they are added to `seen`."""
    fresh: list[Pair] = []
    while len(fresh) < size:
        pair = next(pairs)
        if pair.source not in seen and pair.target not in seen:
            seen.update((pair.source, pair.target))
            fresh.append(pair)
    return tuple(fresh)


def _regular(random: Random) -> Iterator[Pair]:
    sampler = Sampler(random)
    while True:
        sentence = sampler.sentence()
        found = labels(sentence)
        if found.isdisjoint(HELD_STRUCTURES):
            yield write(sentence, structure=" ".join(sorted(found)))


def _held(random: Random) -> Iterator[Pair]:
    """The held-out combinations in turn, one to a sentence."""
    while True:
        for held in HELD_STRUCTURES:
            sampler = Sampler(random, held)
            while held not in (found := labels(sentence := sampler.sentence())):
                pass
            yield write(sentence, structure=" ".join(sorted(found)))
