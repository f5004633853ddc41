"""Speculative decoding: guess several tokens cheaply, read all of them in one call, and keep those that may stay.

Drafts are a tree below the last token of a text: pairs ``(parent, token)``, where parent 0 is the text's last token and
parent i the i-th draft, which comes before its children. A chain is ``list(enumerate(tokens))``.

Source: Leviathan et al. 2023 and Chen et al. 2023 (chains); Miao et al. 2024; Cai et al. 2024; Li et al. 2024 (trees).
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attn_core.contract import check_integer

Drafts = list[tuple[int, int]]


@dataclass(frozen=True)
class PromptLookup:
    """Drafts what came after the last tokens where they occurred before, up to ``num_tokens`` tokens in all.

    It looks for the last ``longest_match`` tokens, then for fewer, and takes their ``branches`` latest occurrences.
    What followed them is merged into one tree, level by level. This often succeeds if a text repeats its prompt, as
    summaries do.

    Source: Saxena 2023 (one branch).
    """

    num_tokens: int = 4
    longest_match: int = 3
    branches: int = 1

    def __post_init__(self) -> None:
        for name in ("num_tokens", "longest_match", "branches"):
            check_integer(name, getattr(self, name))

    def propose(self, tokens: Sequence[int], limit: int) -> Drafts:
        """At most ``limit`` drafts of what may follow these tokens; none where nothing occurred before."""
        limit = min(limit, self.num_tokens)
        for size in range(min(self.longest_match, len(tokens) - 1), 0, -1):
            last, latest = tokens[-size:], range(len(tokens) - size - 1, -1, -1)
            found = (begin + size for begin in latest if tokens[begin : begin + size] == last)
            if texts := [tokens[end : end + limit] for end in itertools.islice(found, self.branches)]:
                return merge(texts)[:limit]
        return []


def merge(texts: Sequence[Sequence[int]]) -> Drafts:
    """The tree of these texts, in which those that begin alike share their beginning, level by level."""
    numbers: dict[tuple[int, int], int] = {}  # of each draft
    ends = [0] * len(texts)
    for depth in range(max(map(len, texts))):
        for i, text in enumerate(texts):
            if depth < len(text):
                ends[i] = numbers.setdefault((ends[i], text[depth]), len(numbers) + 1)
    return list(numbers)


def verify(pick: Callable[[Tensor], Tensor], logits: Tensor, drafts: Drafts) -> tuple[list[int], list[int]]:
    """The tokens that ``pick`` takes down the tree, the last of which is not in it; and the drafts that they are.

    Shapes: ``logits (K + 1, V)``, after the token before the K drafts and after each of them. Every token is picked as
    it would be without drafts, with the same draws, so a draft stays with the probability that the model gives it.
    """
    numbers = {draft: number for number, draft in enumerate(drafts, 1)}
    taken: list[int] = []
    path: list[int] = []
    place = 0
    while True:
        taken.append(int(pick(logits[place : place + 1])))
        if (place, taken[-1]) not in numbers:
            return taken, path
        place = numbers[place, taken[-1]]
        path.append(place)


def reject(target: Tensor, drafted: Tensor, drafts: Sequence[int], generator: torch.Generator | None) -> list[int]:
    """Accept or reject drafts that were drawn from ``drafted``: the tokens that stay, and the one that follows them.

    Shapes: the model's probabilities ``target (K + 1, V)``, the draft model's ``drafted (K, V)``. Each token has the
    model's distribution, given those before it.

    Source: Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2.
    """
    taken: list[int] = []
    following = target[-1]
    for p, q, token in zip(target, drafted, drafts, strict=False):
        chance = float(torch.rand((), generator=generator, device=target.device))
        if q[token] > 0 and chance >= float(p[token] / q[token]):
            left = (p - q).clamp(min=0.0)
            following = left if left.sum() > 0 else p  # nothing is left where only rounding rejects
            break
        taken.append(token)
    return [*taken, int(torch.multinomial(following, 1, generator=generator))]
