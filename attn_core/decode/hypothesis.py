"""What the searches need of a model, and what they find."""

import math
from collections.abc import Collection
from typing import NamedTuple, Protocol

from torch import Tensor

from attn_core.seq2seq import State

BOS, EOS = 1, 2
"""The ids with which texts begin and end in the book's vocabularies. Other vocabularies' are given as arguments."""

BAD_LOGITS = "logits: expected a finite greatest logit in each row, got NaN or an infinity"


class Stepper(Protocol):
    """A model that decodes token by token; its states can ``select(rows)`` and know the last step's ``weights``."""

    def init_state(self, source: Tensor, lengths: Tensor) -> State:
        """Read ``source (B, S)`` with ``lengths (B,)``."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits ``(B, V)`` after ``tokens (B,)``, and the next state."""


class Hypothesis(NamedTuple):
    """One decoded sentence: token ids without the one that ends it, <eos>.

    ``log_probability`` (nats) is the model's for the ids, <eos> included where it came; ``attention (T, S)`` holds
    one row per id, or is None for a model without attention; ``finished`` is False where the maximum length cut the
    sentence off before <eos>.
    """

    ids: list[int]
    log_probability: float
    attention: Tensor | None
    finished: bool

    @classmethod
    def of(
        cls, ids: list[int], log_probability: float, weights: Tensor | None, end_ids: Collection[int]
    ) -> "Hypothesis":
        """From the ids as they came, one row of ``weights`` for each: those before the first that ends a sentence."""
        if math.isnan(log_probability):
            raise ValueError(BAD_LOGITS)
        length = next((i for i, token in enumerate(ids) if token in end_ids), len(ids))
        return cls(ids[:length], log_probability, None if weights is None else weights[:length], length < len(ids))
