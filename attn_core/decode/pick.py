"""Which token comes next: the likeliest one, or one drawn from a distribution that may be cut and sharpened."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.contract import can_read, check_integer, check_number, is_number, kind

BOS, EOS = 1, 2
"""The ids with which texts begin and end in the book's vocabularies. Other vocabularies' are given as arguments."""

BAD_LOGITS = "logits: expected a finite greatest logit in each row, got NaN or an infinity"

Pick = Callable[[Tensor], Tensor]
"""From logits ``(B, V)`` to the tokens taken, ``(B,)`` integers."""


def argmax(logits: Tensor) -> Tensor:
    """The token of the greatest logit: ``(…, V)`` to ``(…)``."""
    return logits.argmax(-1)


def top_k(logits: Tensor, k: int) -> Tensor:
    """The ``k`` greatest logits as they are, the others −inf; all, if there are no more than ``k``.

    Shapes: ``logits (…, V)``, to the same shape. Of equal logits no more are kept than there is room for.

    Source: Fan et al. 2018, section 5.4.
    """
    check_integer("k", k)
    values, places = logits.topk(min(k, logits.shape[-1]), dim=-1)
    return torch.full_like(logits, -math.inf).scatter(-1, places, values)


def top_p(logits: Tensor, p: float) -> Tensor:
    """The nucleus: the fewest likeliest tokens whose probabilities sum to at least ``p``; the other logits are −inf.

    Shapes: ``logits (…, V)``, to the same shape. The token that crosses ``p`` is kept, so there always is one.

    Source: Holtzman et al. 2020, section 3.1.
    """
    _check_share("p", p)
    if p == 1:  # rounded sums may reach 1 before the last token
        return logits
    probabilities, places = logits.softmax(-1, dtype=torch.float32).sort(dim=-1, descending=True, stable=True)
    before = functional.pad(probabilities.cumsum(-1)[..., :-1], (1, 0))
    p = max(p, torch.finfo(before.dtype).tiny)  # rounded to 0, it would leave none
    beyond = torch.zeros_like(places, dtype=torch.bool).scatter(-1, places, before >= p)
    return logits.masked_fill(beyond, -math.inf)


@dataclass(frozen=True)
class Sampler:
    """Draws a token from the model's distribution: sharpened by ``temperature``, then cut by ``top_k`` and ``top_p``.

    ``generator`` makes the draws repeatable; without one they follow PyTorch's global seed. A ``Pick``.

    Source: Holtzman et al. 2020, sections 3.1 to 3.3.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature)
        if self.top_k is not None:
            check_integer("top_k", self.top_k)
        if self.top_p is not None:
            _check_share("top_p", self.top_p)

    def probabilities(self, logits: Tensor) -> Tensor:
        """The distribution that is drawn from: ``logits (…, V)`` to the same shape, float32."""
        # The greatest logit goes to 0 first and stays there, however low the temperature is.
        logits = logits.float() - logits.float().amax(-1, keepdim=True)
        logits = logits / max(self.temperature, torch.finfo(logits.dtype).tiny)
        if self.top_k is not None:
            logits = top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = top_p(logits, self.top_p)
        return logits.softmax(-1)

    def __call__(self, logits: Tensor) -> Tensor:
        """One token for each row: ``logits (B, V)`` to ``(B,)``."""
        if can_read(logits):  # on a GPU this would wait for the device, and PyTorch raises its own error later
            check_logits(logits)
        return torch.multinomial(self.probabilities(logits), 1, generator=self.generator)[:, 0]


def take(pick: Pick, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens taken from logits ``(B, V)``, and the model's log-probabilities of them: ``(B,)`` each.

    Bad logits are refused here on a CPU. On a GPU a check would wait for the device, but the log-probabilities become
    NaN, which ``Hypothesis.of`` refuses.
    """
    logits = logits.float()
    if logits.device.type == "cpu":
        check_logits(logits)
    tokens = pick(logits)
    integers = isinstance(tokens, Tensor) and tokens.dtype == torch.int64
    if not integers or tokens.shape != logits.shape[:1] or tokens.device != logits.device:
        raise ValueError(f"pick: expected {len(logits)} token ids (int64) on {logits.device}, got {kind(tokens)}")
    return tokens, logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]


def check_logits(logits: Tensor) -> None:
    """Each row has a greatest logit that is finite. On a GPU, this waits for the device."""
    if not logits.amax(-1).isfinite().all():
        raise ValueError(BAD_LOGITS)


def _check_share(name: str, share: float) -> None:
    if not is_number(share) or not 0 < share <= 1:
        raise ValueError(f"{name}: expected a probability in (0, 1], got {share!r}")
