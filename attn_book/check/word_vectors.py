"""Check of positive pointwise mutual information (PPMI)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_VECTORS = ("chapters/17_pretraining", "One vector per word")


def _cases(draw: Inputs) -> Iterator[Case]:
    for words in (draw.whole(4, 6), draw.whole(7, 9)):
        counts = draw.ids(6, words, words).float() * (draw.uniform(words, words) < 0.6) + torch.eye(words)
        yield Case(f"symmetric counts of {words} words", (counts + counts.T,))
    lopsided = counts.index_add(0, torch.tensor([0]), 5 + draw.ids(9, 1, words).float())
    yield Case("counts that are not symmetric", (lopsided,), edge=True)
    known = (torch.arange(words) > 0).float()
    yield Case("a word that never occurs", ((counts + counts.T) * known * known[:, None],), edge=True)


def _by_chance(counts: Tensor) -> Tensor:
    return counts.sum(1, keepdim=True) * counts.sum(0) / counts.sum()


def _ratio(counts: Tensor) -> Tensor:
    return (counts / _by_chance(counts)).nan_to_num(0.0)


def _cut(logs: Tensor) -> Tensor:
    return logs.nan_to_num(0.0, neginf=0.0).clamp(min=0)


ppmi = Check(
    "ppmi",
    answer=lambda n: _cut(_ratio(n).log()),
    cases=_cases,
    misconceptions=[
        Misconception(
            lambda n: _ratio(n).log().nan_to_num(0.0, neginf=0.0),
            "negative values are not set to 0",
            "Pairs that occur less often than by chance get 0, like those that never occur.",
            _VECTORS,
        ),
        Misconception(
            _ratio,
            "no logarithm is taken",
            "The ratio to chance is 1 for independent words, and its logarithm is then 0.",
            _VECTORS,
        ),
        Misconception(
            lambda n: _cut(_ratio(n).log() / math.log(2)),
            "the logarithm is to base 2",
            "The formula has the natural one. The two differ by a factor.",
            _VECTORS,
        ),
        Misconception(
            lambda n: _cut((_ratio(n) / n.sum()).log()),
            "the total n is left out of the numerator",
            "Counts are then compared with squared counts, and almost nothing is left above 0.",
            _VECTORS,
        ),
        Misconception(
            lambda n: _cut(_ratio(n + 1).log()),
            "1 is added to every count",
            "It keeps the logarithm from 0, but it also makes rare pairs look like chance. Cut at 0 instead.",
            _VECTORS,
        ),
        Misconception(
            lambda n: _cut((n * n.sum() / n.sum(1, keepdim=True) / n.sum(1)).log()),
            "both sums run over the second word",
            "n(w) is a sum over the second word, n(c) one over the first. Symmetric counts do not show this mistake.",
            _VECTORS,
        ),
        Misconception(
            lambda n: (n / _by_chance(n)).log().clamp(min=0),
            "a word that never occurs is not handled",
            "Its ratio is 0/0, which is NaN, and one NaN spoils all singular vectors.",
            _VECTORS,
        ),
    ],
    hints=[
        "n.sum(1, keepdim=True) * n.sum(0) / n.sum() is the count expected by chance.",
        "The logarithm of 0 is −∞, which clamp(min=0) makes 0. But 0/0 is NaN: nan_to_num.",
    ],
)
