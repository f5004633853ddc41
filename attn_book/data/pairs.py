"""A sentence, its translation, and which word comes from which; and the parts of a corpus of them."""

from __future__ import annotations

from dataclasses import dataclass

from attn_core.contract import shown


@dataclass(frozen=True)
class Pair:
    """A source sentence and its translation, as words, with the true alignment where it is known.

    ``links`` holds (source index, target index), counted from 0; it is empty where the alignment is unknown.
    ``structure`` names what the sentence is made of, as words separated by spaces.

    Raises:
        ValueError: if a side is empty or no tuple of words, or ``links`` are no frozenset of pairs within range.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: frozenset[tuple[int, int]] = frozenset()
    structure: str = ""

    def __post_init__(self) -> None:
        for name, words in (("source", self.source), ("target", self.target)):
            if not isinstance(words, tuple) or not words or not all(isinstance(word, str) and word for word in words):
                raise ValueError(f"{name}: expected a non-empty tuple of words, got {shown(words)}")
        if not isinstance(self.links, frozenset):
            raise ValueError(f"links: expected a frozenset, got {shown(self.links)}")
        sizes = len(self.source), len(self.target)
        for link in self.links:
            if (
                not isinstance(link, tuple)
                or [type(i) for i in link] != [int, int]
                or not (0 <= link[0] < sizes[0] and 0 <= link[1] < sizes[1])
            ):
                expected = f"(source index below {sizes[0]}, target index below {sizes[1]})"
                raise ValueError(f"links: expected {expected}, got {link!r}")

    def reversed(self) -> Pair:
        """The same pair in the other direction: sides and links swapped."""
        return Pair(self.target, self.source, frozenset((t, s) for s, t in self.links), self.structure)


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs for training, validation and test; no pair is in two of them."""

    train: tuple[Pair, ...]
    valid: tuple[Pair, ...]
    test: tuple[Pair, ...]
