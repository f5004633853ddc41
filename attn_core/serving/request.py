"""What is asked of the engine, and what it answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from attn_core.contract import check_integer, kind, shown, token_ids
from attn_core.decode import Sampler
from attn_core.decode.pick import EOS
from attn_core.serving.speculative import Drafts


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
    stop_ids: Sequence[int] = (EOS,)
    stop_strings: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("prompt", "stop_ids"):
            object.__setattr__(self, name, token_ids(name, getattr(self, name)))
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
    ``number`` is the order of arrival, ``decode`` the engine's, ``sequence`` holds its keys and values while it runs
    (otherwise −1), ``drafts`` are read beyond its last token in the next step, ``last_step`` is the step that last
    worked on it, and ``end`` is where in the text the stop string begins that ended it.
    """

    request: Request
    number: int
    sampler: Sampler | None
    decode: Callable[[list[int]], str] | None = None
    ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    error: Exception | None = None
    sequence: int = -1
    drafts: Drafts = field(default_factory=list)
    last_step: int = -1
    end: int | None = None

    @property
    def text(self) -> str | None:
        """The new tokens so far as the engine's ``decode`` gives them, without the stop string that ended them.

        ``ids`` are all tokens that came, the stop string's too. None where the engine has no ``decode``.
        """
        return None if self.decode is None else self._decoded(self.ids)[: self.end]

    @property
    def settled(self) -> int:
        """How many of the new tokens hold nothing of a stop string, neither of the one that came nor of one begun."""
        strings = self.request.stop_strings
        if not strings or self.error is not None:
            return len(self.ids)
        text, end = self._decoded(self.ids), self.end
        if end is None:
            begun = [n for s in strings for n in range(1, len(s)) if text.endswith(s[:n])]
            end = len(text) - (max(begun, default=0) if self.finish_reason is None else 0)
        count = len(self.ids)
        while count and len(self._decoded(self.ids[:count])) > end:
            count -= 1
        return count

    def stopped(self) -> bool:
        """Whether the last token has completed a stop string; notes where the first one begins."""
        if not self.request.stop_strings:
            return False
        found = map(self._decoded(self.ids).find, self.request.stop_strings)
        self.end = min((begin for begin in found if begin >= 0), default=None)
        return self.end is not None

    def _decoded(self, ids: list[int]) -> str:
        text = self.decode(ids) if self.decode is not None else None
        if not isinstance(text, str):
            raise ValueError(f"decode: expected a function that returns text, got {kind(text)}")
        return text

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
