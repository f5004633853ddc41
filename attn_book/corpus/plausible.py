"""Does it make sense? Sentences by twos, of the same words, with an animate noun and a thing exchanged in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attn_book.corpus.grammar import stream
from attn_book.corpus.lexicon import NOUNS
from attn_book.corpus.paragraphs import Paragraph, check_sizes

ANIMATE = frozenset({"person", "animal"})
EITHER_WAY = frozenset({"near", "front", "behind"})
"""Words of relations that hold of a man and a castle whichever comes first: sentences with them are left out."""


@dataclass(frozen=True)
class Plausible:
    """An English sentence, and whether it is one of the grammar's or its twin with two nouns exchanged."""

    words: tuple[str, ...]
    plausible: bool


def plausible_sentences(
    paragraphs: Sequence[Paragraph], *, without: Sequence[Paragraph] = (), seed: int = 0
) -> tuple[Plausible, ...]:
    """The sentences of some paragraphs that name somebody and something, each followed by its twin.

    "The boy found the mirror" and "the mirror found the boy": examples 2i and 2i + 1 have the same words, so a bag of
    words is right half the time. The exchanged nouns follow the same article, so that no article gives the twin away.
    Every sentence comes once, none that is in ``without``, in the order of the paragraphs; the seed chooses the nouns
    where there are several, and which twin stands first.

    Raises: ValueError for something that is not a `Paragraph`, or a seed that is not an integer of 0 or more.
    """
    check_sizes({"seed": seed})
    for name, given in (("paragraphs", paragraphs), ("without", without)):
        for paragraph in given:
            if not isinstance(paragraph, Paragraph):
                raise ValueError(f"{name}: expected Paragraphs, got {paragraph!r}")
    random = stream("plausible sentences", seed)
    seen = {pair.source for paragraph in without for pair in paragraph.sentences}
    examples: list[Plausible] = []
    for pair in (pair for paragraph in paragraphs for pair in paragraph.sentences):
        chances = _exchanges(pair.source)
        if pair.source in seen or not chances:
            continue
        i, j = random.choice(chances)
        words = list(pair.source)
        words[i], words[j] = words[j], words[i]
        seen.add(pair.source)
        twins = [Plausible(pair.source, True), Plausible(tuple(words), False)]
        random.shuffle(twins)
        examples += twins
    return tuple(examples)


def _exchanges(words: Sequence[str]) -> list[tuple[int, int]]:
    """The places of an animate noun and of a thing, after the same article, whose exchange makes no sense."""
    if not EITHER_WAY.isdisjoint(words):
        return []
    places = [at for at in range(1, len(words)) if words[at] in NOUNS]
    return [
        (i, j)
        for i in places
        for j in places
        if words[i - 1] == words[j - 1] and _animate(words[i]) and not _animate(words[j])
    ]


def _animate(noun: str) -> bool:
    return not ANIMATE.isdisjoint(NOUNS[noun].classes)
