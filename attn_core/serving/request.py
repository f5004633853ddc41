"""What is asked of the engine, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from attn_core.contract import check_integer, kind, token_ids
from attn_core.decode import Sampler
from attn_core.decode.pick import EOS


@dataclass(frozen=True)
class Request:
    """A prompt, and how to continue it.

    At most ``max_new_tokens`` tokens come, the one that stops it counted. Without a ``sampler`` each is the most
    probable one; if it has a ``generator`` of its own, its tokens do not depend on the other requests. The text ends
    before a token of ``stop_ids``, by default <eos>.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    sampler: Sampler | None = None
    stop_ids: Sequence[int] = (EOS,)

    def __post_init__(self) -> None:
        for name in ("prompt", "stop_ids"):
            object.__setattr__(self, name, token_ids(name, getattr(self, name)))
        if not self.prompt:
            raise ValueError("prompt: expected at least one token id, got none")
        check_integer("max_new_tokens", self.max_new_tokens)
        if self.sampler is not None and not isinstance(self.sampler, Sampler):
            raise ValueError(f"sampler: expected a Sampler, or None for the likeliest token, got {kind(self.sampler)}")


@dataclass(eq=False)
class Completion:
    """A request's answer as it grows: ``ids`` are the new tokens so far.

    ``finish_reason`` is None until the last has come, and then "stop" (a stop token), "length" (``max_new_tokens``),
    "cancelled" or "error", which ``error`` explains. The other fields belong to the engine: ``number`` is the order of
    arrival, ``sequence`` holds its keys and values while it runs (otherwise −1), ``drafts`` are read beyond its last
    token in the next step, and ``last_step`` is the step that last worked on it.
    """

    request: Request
    number: int
    ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    error: Exception | None = None
    sequence: int = -1
    drafts: list[int] = field(default_factory=list)
    last_step: int = -1

    @property
    def tokens(self) -> list[int]:
        """The prompt and the new tokens."""
        return [*self.request.prompt, *self.ids]

    def __len__(self) -> int:
        return len(self.request.prompt) + len(self.ids)

    @property
    def room(self) -> int:
        """How many tokens may still come."""
        return self.request.max_new_tokens - len(self.ids)
