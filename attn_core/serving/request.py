"""What is asked of the engine, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from attn_core.contract import check_integer, kind, shown
from attn_core.data import Vocab
from attn_core.decode import Sampler


@dataclass(frozen=True)
class Request:
    """A prompt, and how to continue it.

    At most ``max_new_tokens`` tokens come, the one that stops it counted. Without a ``sampler`` each is the likeliest
    one. ``seed`` gives the request a random generator of its own, so that its tokens do not depend on the other
    requests. The text ends before a token of ``stop_ids``, by default <eos>, or with the token that completes one of
    the ``stop_strings``.

    Raises:
        ValueError: if the prompt is empty, an id is not an integer of at least 0, ``max_new_tokens`` is below 1, the
            sampler is not a ``Sampler``, a seed comes without one, or a stop string is empty or no string.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    sampler: Sampler | None = None
    seed: int | None = None
    stop_ids: Sequence[int] = (Vocab.EOS,)
    stop_strings: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("prompt", "stop_ids"):
            ids = getattr(self, name)
            if not isinstance(ids, Sequence) or isinstance(ids, str):
                raise ValueError(f"{name}: expected a sequence of token ids, got {kind(ids)}")
            for token in ids:
                check_integer(name, token, at_least=0)
            object.__setattr__(self, name, tuple(ids))
        if not self.prompt:
            raise ValueError("prompt: expected at least one token id, got none")
        check_integer("max_new_tokens", self.max_new_tokens)
        if self.sampler is not None and not isinstance(self.sampler, Sampler):
            raise ValueError(f"sampler: expected a Sampler, or None for the likeliest token, got {kind(self.sampler)}")
        if self.seed is not None:
            check_integer("seed", self.seed, at_least=0, at_most=2**63 - 1)
            if self.sampler is None:
                raise ValueError(f"seed: expected a sampler to go with it, got {self.seed} and no sampler")
        strings = self.stop_strings
        listed = isinstance(strings, Sequence) and not isinstance(strings, str)
        if not listed or not all(isinstance(s, str) and s for s in strings):
            raise ValueError(f"stop_strings: expected strings that are not empty, got {shown(self.stop_strings)}")
        object.__setattr__(self, "stop_strings", tuple(self.stop_strings))


@dataclass(eq=False)
class Completion:
    """A request's answer as it grows: ``ids`` are the new tokens so far.

    ``finish_reason`` is None until the last has come, and then "stop" (a stop token or string), "length"
    (``max_new_tokens``), "cancelled" or "error", which ``error`` explains. The other fields belong to the engine:
    ``number`` is the order of arrival, ``sequence`` holds its keys and values while it runs (otherwise −1), ``drafts``
    are read beyond its last token in the next step, and ``last_step`` is the step that last worked on it.
    """

    request: Request
    number: int
    sampler: Sampler | None
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
