"""Paragraphs as texts to pretrain on: whole sentences cut in two, with their own rest or another's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from attn_book.corpus.paragraphs import Paragraph, check_sizes
from attn_book.corpus.sentence_pairs import next_sentences
from attn_core.contract import shown
from attn_core.data import Pair
from attn_core.pretrain import Text


def two_part_texts(paragraphs: Sequence[Paragraph], *, seed: int = 0) -> Callable[[int], Sequence[Text]]:
    """All English words of each paragraph, cut between two sentences; each epoch cuts anew. No classes.

    A paragraph of one sentence stays whole.

    Raises:
        ValueError: a seed that is not an integer of 0 or more, or something that is no ``Paragraph``.
    """
    check_sizes({"seed": seed})
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
    """The English beginning of each paragraph, and its rest (class 1) or the rest of another one (class 0).

    Each epoch cuts anew, and draws other rests. As many words are read as with ``two_part_texts``.

    Raises:
        ValueError: when called, as ``next_sentences``.
    """

    def texts(number: int) -> Sequence[Text]:
        return [
            Text(_english(one.first), _english(one.second), int(one.follows))
            for one in next_sentences(paragraphs, seed=(seed << 16) + number)
        ]

    return texts


def _english(sentences: Sequence[Pair]) -> tuple[str, ...]:
    """Their English words, one after another."""
    return tuple(word for pair in sentences for word in pair.source)
