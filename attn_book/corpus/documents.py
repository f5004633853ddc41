"""Documents of many sentences, one of which decides what an ambiguous word means."""

import random
from typing import NamedTuple

from attn_book.corpus.ambiguous import SENSES, SURROUNDINGS, AmbiguousWord, ambiguous_words
from attn_book.corpus.paragraphs import Paragraph, paragraph_corpus

DOCUMENT_WORDS = ("bank", "lock", "seal", "bat", "coach", "plant", "bow", "organ")


class Document(NamedTuple):
    """The sentences of an example among fillers, and each one's place in the example, −1 for a filler."""

    example: AmbiguousWord
    sentences: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...]


class DocumentCorpus(NamedTuple):
    """4,000 documents for training, 800 for the test (10 to 16 sentences), 400 longer ones; twins lie together."""

    train: list[Document]
    test: list[Document]
    longer: list[Document]


def document_corpus(longer: int = 48) -> DocumentCorpus:
    """Documents of the plain and the negated kind of `ambiguous_words`, the same on every call.

    ``longer`` is the number of sentences of the longer ones.
    """
    examples = ambiguous_words(train=6000, valid=0, test=1200, words=DOCUMENT_WORDS)
    stories = paragraph_corpus(train=2000, valid=0, test=500)
    train = _documents(examples.train, _fillers(stories.train), 10, 16, 0)
    test, long = (
        _documents(examples.test, _fillers(stories.test), low, high, 1) for low, high in ((10, 16), (longer, longer))
    )
    return DocumentCorpus(train, test, long[:400])


def _fillers(paragraphs: tuple[Paragraph, ...]) -> list[tuple[str, ...]]:
    """Short sentences that name no place and no word with two meanings."""
    telling = {noun.english[0] for places in SURROUNDINGS.values() for _, noun in places} | set(SENSES)
    sentences = {pair.source for one in paragraphs for pair in one.sentences}
    return sorted(words for words in sentences if len(words) < 9 and not telling & set(words))


def _documents(
    examples: tuple[AmbiguousWord, ...], fillers: list[tuple[str, ...]], low: int, high: int, seed: int
) -> list[Document]:
    draw, found = random.Random(seed), []
    for one in examples:
        if one.kind == "bound":
            continue
        rows = [(pair.source, number) for number, pair in enumerate(one.paragraph.sentences)]
        for _ in range(draw.randint(low, high) - len(rows)):
            rows.insert(draw.randint(0, len(rows)), (draw.choice(fillers), -1))
        found.append(Document(one, *zip(*rows, strict=True)))
    return found
