"""Checks of the alignment error rate, and test pairs that leak from the training pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attn_book.alignment import alignment_error as right_error
from attn_book.alignment import true_sources
from attn_book.check.exercise import Case, Check, Inputs, Misconception

_MEASURES = ("chapters/02_bahdanau", "Sentences, alignment error and BLEU")
_PEOPLE = ("chapters/03_luong", "Translating well and pointing well")

Links = list[tuple[int, int]]
Pairs = list[tuple[str, str]]


# The alignment error.


def _error_cases(draw: Inputs) -> Iterator[Case]:
    yield Case("short sentences", _aligned(draw, [draw.whole(5, 7) for _ in range(6)]))
    yield Case("sentences of very different lengths", _aligned(draw, [3, 4, draw.whole(6, 12), draw.whole(18, 24)]))
    maps, links = _aligned(draw, [draw.whole(5, 8), draw.whole(5, 8)])
    yield Case("two sentences of which one has no links", (maps, [links[0], []]), edge=True)
    longer = [torch.cat([weights, torch.zeros(len(weights), 3)], -1) for weights in maps]
    yield Case("maps with columns of padding", (longer, links), edge=True)


def _aligned(draw: Inputs, lengths: list[int]) -> tuple[list[Tensor], list[Links]]:
    """A map for each sentence, with a row and a column for <eos>, and its links: for a word two, one or none."""
    maps, links = [], []
    for words in lengths:
        sources = draw.whole(max(2, words - 2), words + 2)
        scores, pairs = draw.normal(words + 1, sources + 1), []
        for target in range(words):
            first = draw.whole(0, sources - 1)
            true = [first, (first + 1) % sources][: (2, 1, 1, 2, 0)[target % 5]]
            pairs += [(source, target) for source in true]
            if true and draw.whole(0, 4) > 0:
                scores[target, true[-1 if target % 2 else 0]] += 3.0  # looks at one of the true words, usually
        maps.append(scores.softmax(-1))
        links.append(pairs)
    return maps, links


def _hits(weights: Tensor, pairs: Links) -> list[bool]:
    """Whether the greatest weight is on a linked source word, for each target word that has a link."""
    return [int(weights[target].argmax()) in true for target, true in true_sources(pairs).items()]


def _share_wrong(hits: list[bool]) -> float:
    return 1 - sum(hits) / len(hits)


def _pooled(maps: list[Tensor], links: list[Links], hits: Any = _hits) -> float:
    return _share_wrong([hit for weights, pairs in zip(maps, links, strict=True) for hit in hits(weights, pairs)])


alignment_error = Check(
    "alignment_error",
    answer=right_error,
    cases=_error_cases,
    misconceptions=[
        Misconception(
            lambda maps, links: 1 - _pooled(maps, links),
            "the words with a correct alignment are counted",
            "That is the accuracy, which is one minus the error.",
            _MEASURES,
        ),
        Misconception(
            lambda maps, links: _pooled(
                maps, links, lambda a, pairs: [int(a[target].argmax()) == source for source, target in pairs]
            ),
            "every link counts once, instead of every word",
            "A target word with two links can put its greatest weight on only one of them, so it would always be "
            "half wrong.",
            _MEASURES,
        ),
        Misconception(
            lambda maps, links: sum(map(_share_wrong, map(_hits, maps, links))) / len(maps),
            "the errors of the sentences are averaged",
            "A word of a short sentence then counts for more than one of a long sentence. Count over all words.",
            _MEASURES,
        ),
        Misconception(
            lambda maps, links: _pooled(
                maps, links, lambda a, pairs: [(s, t) in pairs for t, s in enumerate(a.argmax(1).tolist())]
            ),
            "every row of a map is counted",
            "A word without a link cannot be right, and neither can <eos>: leave them out.",
            _MEASURES,
        ),
        Misconception(
            lambda maps, links: _pooled(
                maps, links, lambda a, pairs: [int(a[t].argmax()) == s for t, s in {t: s for s, t in pairs}.items()]
            ),
            "a word keeps only one of its links",
            "A dictionary from each target word to its source word keeps only the last link.",
            _MEASURES,
        ),
        Misconception(
            lambda maps, links: _pooled(
                maps, links, lambda a, pairs: [(s, int(a[:, s].argmax())) in pairs for s in {s for s, _ in pairs}]
            ),
            "the maximum is taken over the target words",
            "A row belongs to a target word, and its weights are over the source words: take the maximum along "
            "the row.",
            _MEASURES,
        ),
        Misconception(
            lambda maps, links: 1 - float(torch.stack(_weights_on_true(maps, links)).mean()),
            "the weights on the linked words are added up",
            "The measure depends on where the greatest weight is, and not on how large it is.",
            _MEASURES,
        ),
    ],
    hints=[
        "A link is (source, target). Which target words have a link? A set holds each of them once.",
        "For such a word t the guess is int(weights[t].argmax()). Is (guess, t) among the links?",
        "Count the wrong words and all words over all sentences, and divide once, at the end.",
    ],
)


def _weights_on_true(maps: list[Tensor], links: list[Links]) -> list[Tensor]:
    pairs = [pair for pair in zip(maps, map(true_sources, links), strict=True)]
    return [weights[target, list(true)].sum() for weights, words in pairs for target, true in words.items()]


# What leaks from training into the test.


def _leak_cases(draw: Inputs) -> Iterator[Case]:
    for name in ("a few pairs", "other pairs"):
        source, both = draw.whole(1, 2), draw.whole(1, 3)
        yield Case(name, _split(draw.whole(8, 10), source, draw.whole(3, 4), both, draw.whole(1, 2)))
    train, test = _split(8, 0, 0, 0, 0)
    yield Case("pairs of which none leaks", (train, test), edge=True)
    yield Case("the same pairs on both sides", (train, train), edge=True)


def _split(size: int, source: int, target: int, both: int, whole: int) -> tuple[Pairs, Pairs]:
    """Training pairs, and test pairs that share so many sentences with them: see the names."""
    train = [(f"sentence {i}", f"phrase {i}") for i in range(size)]
    test = [(f"sentence {i}", f"nouvelle phrase {i}") for i in range(source)]
    test += [(f"new sentence {i}", f"phrase {i}") for i in range(target)]
    test += [(f"sentence {i}", f"phrase {i + 1}") for i in range(both)]
    test += train[:whole]
    clean = len(test) + 2  # more than leak, so that no two ways to count agree
    return train, [*test, *((f"other sentence {i}", f"autre phrase {i}") for i in range(clean))]


def _share(train: Pairs, test: Pairs, leaks: Any) -> float:
    """The share of test pairs for which ``leaks(source known, target known, pair known)`` is true."""
    sources, targets = (set(side) for side in zip(*train, strict=True))
    return sum(leaks(s in sources, t in targets, (s, t) in train) for s, t in test) / len(test)


def _either(source: bool, target: bool, _: bool) -> bool:
    return source or target


leak = Check(
    "leak",
    answer=lambda train, test: _share(train, test, _either),
    cases=_leak_cases,
    misconceptions=[
        Misconception(
            lambda train, test: _share(train, test, lambda source, target, pair: pair),
            "only whole pairs count as known",
            "A new pair may still have one side from training, which the model may have learned by heart.",
            _PEOPLE,
        ),
        Misconception(
            lambda train, test: _share(train, test, lambda source, target, pair: source and target),
            "both sentences must be known",
            "One known sentence is enough for a leak.",
            _PEOPLE,
        ),
        Misconception(
            lambda train, test: _share(train, test, lambda source, target, pair: source),
            "only the English side is compared",
            "A French sentence from the training pairs leaks just as much.",
            _PEOPLE,
        ),
        Misconception(
            lambda train, test: _share(train, test, lambda source, target, pair: target),
            "only the French side is compared",
            "An English sentence from the training pairs leaks just as much.",
            _PEOPLE,
        ),
        Misconception(
            lambda train, test: _share(train, test, _either) * len(test) / len(train),
            "the number of test pairs that leak is divided by the number of training pairs",
            "It is a share of the test pairs.",
            _PEOPLE,
        ),
        Misconception(
            lambda train, test: 1 - _share(train, test, _either),
            "the pairs that do not leak are counted",
            "That is the share of fair test pairs.",
            _PEOPLE,
        ),
        Misconception(
            lambda train, test: _share(train, test, lambda source, target, pair: (source + target) / 2),
            "sentences are counted instead of pairs",
            "A pair with one known sentence leaks as a whole.",
            _PEOPLE,
        ),
    ],
    hints=[
        "Collect the English sentences of the training pairs in one set, the French ones in another.",
        "A test pair leaks if its English is in the first or its French in the second.",
    ],
)
