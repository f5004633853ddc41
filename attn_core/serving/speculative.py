"""Speculative decoding: guess several tokens cheaply, read all of them in one call, and keep those that may stay."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attn_core.contract import check_integer


@dataclass(frozen=True)
class PromptLookup:
    """Drafts what came after the last tokens when they occurred before, up to ``num_tokens`` tokens.

    It looks for the last ``longest_match`` tokens, then for fewer, and takes their latest earlier occurrence. This
    often succeeds if a text repeats its prompt, as summaries do.

    Source: Saxena 2023.
    """

    num_tokens: int = 4
    longest_match: int = 3

    def __post_init__(self) -> None:
        check_integer("num_tokens", self.num_tokens)
        check_integer("longest_match", self.longest_match)

    def propose(self, tokens: Sequence[int], limit: int) -> list[int]:
        """At most ``limit`` tokens that may follow these; none where nothing occurred before."""
        for size in range(min(self.longest_match, len(tokens) - 1), 0, -1):
            last = tokens[-size:]
            for begin in range(len(tokens) - size - 1, -1, -1):
                if tokens[begin : begin + size] == last:
                    return list(tokens[begin + size :][: min(limit, self.num_tokens)])
        return []


def verify(pick: Callable[[Tensor], Tensor], logits: Tensor, drafts: Sequence[int]) -> list[int]:
    """The tokens that ``pick`` takes, as far as the drafts agree with them, and the first that differs or is new.

    Shapes: ``logits (K + 1, V)``, after the token before the K drafts and after each of them. Every token is picked as
    it would be without drafts, with the same draws, so a draft stays with the probability that the model gives it.
    """
    taken: list[int] = []
    for i, expected in enumerate([*drafts, None]):
        taken.append(int(pick(logits[i : i + 1])))
        if taken[-1] != expected:
            break
    return taken


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
