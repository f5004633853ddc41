"""Words to numbers and back."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from attn_core.contract import check_integer, kind, shown


class Vocab:
    """The words of some sentences, numbered by frequency, then alphabet, after four special tokens.

    Words seen fewer than ``min_count`` times are left out and encode to ``UNK``. So does a word of a text that looks
    like a special token: the numbers of these are attributes, such as ``EOS``, and only code puts them into a sentence.

    Raises:
        ValueError: if there are no words, a sentence is a string, a word is not a non-empty string, or ``min_count`` is
            below 1.
    """

    PAD: ClassVar[int] = 0
    BOS: ClassVar[int] = 1
    EOS: ClassVar[int] = 2
    UNK: ClassVar[int] = 3
    SPECIALS: ClassVar[tuple[str, ...]] = ("<pad>", "<bos>", "<eos>", "<unk>")

    def __init__(self, sentences: Iterable[Iterable[str]], *, min_count: int = 1) -> None:
        check_integer("min_count", min_count)
        if not isinstance(sentences, Iterable):
            raise ValueError(f"sentences: expected some of them, got {shown(sentences)}")
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(_checked(sentence, "sentences"))
        if not counts:
            raise ValueError("sentences: expected at least one word, got none")
        words = sorted(
            (word for word, count in counts.items() if count >= min_count and word not in self.SPECIALS),
            key=lambda word: (-counts[word], word),
        )
        self.tokens: tuple[str, ...] = (*self.SPECIALS, *words)
        self._ids = {word: number for number, word in enumerate(words, start=len(self.SPECIALS))}

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and word in self._ids

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The numbers of these words, nothing added; a word out of the vocabulary is ``UNK``.

        Raises:
            ValueError: if ``tokens`` is a string, has no words, or has one that is not a non-empty string.
        """
        words = _checked(tokens, "tokens")
        if not words:
            raise ValueError("tokens: expected at least one word, got none")
        return [self._ids.get(word, self.UNK) for word in words]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of these numbers up to the first ``EOS``, without ``PAD`` and ``BOS``.

        Raises:
            ValueError: if a number is not below the size of the vocabulary.
            TypeError: if it is not an integer.
        """
        words = []
        for number in ids:
            index = operator.index(number)
            if not 0 <= index < len(self.tokens):
                raise ValueError(f"ids: expected integers from 0 to {len(self.tokens) - 1}, got {index}")
            if index == self.EOS:
                break
            if index not in (self.PAD, self.BOS):
                words.append(self.tokens[index])
        return words


class PretrainingVocab(Vocab):
    """A vocabulary with three special tokens more, after the four of ``Vocab``, whose numbers stay.

    ``CLS`` begins a text, ``SEP`` ends each of its parts, and ``MASK`` replaces a hidden word.

    Raises:
        ValueError: as ``Vocab``.

    Source: Devlin et al. 2018, section 3.
    """

    CLS: ClassVar[int] = 4
    SEP: ClassVar[int] = 5
    MASK: ClassVar[int] = 6
    SPECIALS: ClassVar[tuple[str, ...]] = (*Vocab.SPECIALS, "<cls>", "<sep>", "<mask>")


def check_vocab(name: str, vocab: Vocab, kind_of: type[Vocab] = Vocab) -> None:
    """``vocab`` is a vocabulary of this kind."""
    if not isinstance(vocab, kind_of):
        raise ValueError(f"{name}: expected a {kind_of.__name__}, got {kind(vocab)}")


def _checked(words: Iterable[str], name: str) -> list[str]:
    if isinstance(words, str) or not isinstance(words, Iterable):  # a string's letters would be words
        raise ValueError(f"{name}: expected a sequence of words, got {shown(words)}")
    words = list(words)
    for word in words:
        if not isinstance(word, str) or not word:
            raise ValueError(f"{name}: expected words that are non-empty strings, got {shown(word)}")
    return words
