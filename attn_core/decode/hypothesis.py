"""What the searches need of a model, and what they find."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from attn_core.data import Vocab
from attn_core.seq2seq import State


class Stepper(Protocol):
    """A model that decodes one token at a time.

    Its states can ``select(rows)`` and know the ``weights`` of the last step.
    """

    def init_state(self, source: Tensor, lengths: Tensor) -> State:
        """Read ``source (B, S)`` with ``lengths (B,)``."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits ``(B, V)`` after ``tokens (B,)``, and the next state."""


class Hypothesis(NamedTuple):
    """One decoded sentence: token ids without <eos>.

    ``log_probability`` (nats) is the model's for the ids, <eos> included where it came; ``attention (T, S)`` holds
    one row per id, or is None for a model without attention; ``finished`` is False where the maximum length cut the
    sentence off before <eos>.
    """

    ids: list[int]
    log_probability: float
    attention: Tensor | None
    finished: bool

    @classmethod
    def of(cls, ids: list[int], log_probability: float, weights: Tensor | None) -> "Hypothesis":
        """From the ids as they came, one row of ``weights`` for each: those before <eos>, and whether it came."""
        finished = Vocab.EOS in ids
        kept = ids[: ids.index(Vocab.EOS)] if finished else ids
        return cls(kept, log_probability, None if weights is None else weights[: len(kept)], finished)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, the mode it was in afterwards."""
    mode = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(mode)
