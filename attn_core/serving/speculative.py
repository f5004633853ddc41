"""Speculative decoding: guess several tokens cheaply, read all of them in one call, and keep those that may stay.

A decoding step reads all parameters for one token of each request. Reading five takes hardly more time, so four are
drafted, by a rule or a smaller model, and checked in one call. The rejection rule keeps the model's distribution.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attn_core.contract import check_integer
from attn_core.decode.pick import check_logits
from attn_core.serving.paged_model import PagedModel
from attn_core.serving.request import Completion
from attn_core.transformer import LanguageModel


@dataclass(frozen=True)
class PromptLookup:
    """Drafts what came after the last tokens when they occurred before, up to ``num_tokens`` tokens.

    It looks for the last ``longest_match`` tokens, then for fewer, and takes their latest earlier occurrence. This
    often succeeds where a text repeats its prompt, as in summaries. Raises ``ValueError`` if a number is below 1.

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


@dataclass(frozen=True)
class DraftModel:
    """Drafts ``num_tokens`` tokens with a smaller model of the same vocabulary.

    Its keys and values lie in the blocks of the same tables, so they are shared, freed and found again together. Raises
    ``ValueError`` if ``num_tokens`` is below 1.

    Source: Leviathan et al. 2023; Chen et al. 2023.
    """

    model: LanguageModel
    num_tokens: int = 4

    def __post_init__(self) -> None:
        check_integer("num_tokens", self.num_tokens)

    def propose(self, tokens: Sequence[int], limit: int) -> list[int]:
        """As many tokens as will be drafted; ``draft`` says which, once there are blocks for them."""
        return [0] * min(limit, self.num_tokens)


def draft(paged: PagedModel, batch: Mapping[Completion, tuple[int, Sequence[int]]]) -> dict[Completion, list[Tensor]]:
    """Let a draft model read the batch, and fill in the ``drafts`` of each request, one token of all at a time.

    ``batch`` has the known tokens that each request reads, and the position of the first. The last draft is read, too,
    as the large model will. Returns the distributions ``(V,)`` that drafts of sampled requests were drawn from.
    """
    distributions: dict[Completion, list[Tensor]] = {}
    while batch:
        drafting, rows, count = [], [], 0
        for completion, (begin, ids) in batch.items():
            count += len(ids)
            if completion.drafts and (done := begin + len(ids) - len(completion)) < len(completion.drafts):
                drafting.append((completion, done))
                rows.append(count - 1)
        logits = paged.read({completion.sequence: tokens for completion, tokens in batch.items()}, rows)
        following: dict[Completion, tuple[int, Sequence[int]]] = {}
        for (completion, done), row in zip(drafting, logits, strict=True):
            token = 0
            try:
                row = completion.adjusted(row[None], done)
                check_logits(row)
                if completion.sampler is None:
                    token = int(row.argmax())
                else:
                    distribution = completion.sampler.probabilities(row)[0]
                    distributions.setdefault(completion, []).append(distribution)
                    token = _drawn(distribution, completion.sampler.generator)
            except Exception as error:  # this request's logits; the others are none the worse for it
                completion.error = error
            completion.drafts[done] = token
            following[completion] = (len(completion) + done, [token])
        batch = following
    return distributions


def verify(pick: Callable[[Tensor], Tensor], logits: Tensor, drafts: Sequence[int]) -> list[int]:
    """The tokens that ``pick`` takes, as far as the drafts agree with them, and the first that differs or is new.

    Shapes: ``logits (K + 1, V)``, after the token before the K drafts and after each of them. Every token is picked as
    it would be without drafts, with the same draws. For drafts that were not drawn this is the rejection rule: one
    stays with the probability that the model gives it.
    """
    taken: list[int] = []
    for i, expected in enumerate([*drafts, None]):
        taken.append(int(pick(logits[i : i + 1])))
        if taken[-1] != expected:
            break
    return taken


def acceptance(target: Tensor, drafted: Tensor) -> Tensor:
    """The probability with which each drafted token stays, min(1, p / q): ``(…, V)``, 1 where q is 0."""
    return (target / drafted).nan_to_num(nan=1.0).clamp(max=1.0)


def residual(target: Tensor, drafted: Tensor) -> Tensor:
    """The distribution ``(…, V)`` of the token that replaces a rejected one: max(0, p − q), normalised."""
    left = (target - drafted).clamp(min=0.0)
    total = left.sum(-1, keepdim=True)
    # Where p and q are the same, nothing is left, and nothing is rejected except by rounding.
    return torch.where(total > 0, left / total, target)


def reject(target: Tensor, drafted: Tensor, drafts: Sequence[int], generator: torch.Generator | None) -> list[int]:
    """Accept or reject drafts that were drawn from ``drafted``: the tokens that stay, and the one that follows them.

    Shapes: the model's probabilities ``target (K + 1, V)`` and the draft model's ``drafted (K, V)``. Each token has the
    model's distribution, given those before it.

    Source: Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2.
    """
    for i, token in enumerate(drafts):
        stays = float(acceptance(target[i], drafted[i])[token])
        if float(torch.rand((), generator=generator, device=target.device)) >= stays:
            return [*drafts[:i], _drawn(residual(target[i], drafted[i]), generator)]
    return [*drafts, _drawn(target[-1], generator)]


def _drawn(probabilities: Tensor, generator: torch.Generator | None) -> int:
    return int(torch.multinomial(probabilities, 1, generator=generator))
