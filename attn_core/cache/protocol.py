"""What a layer keeps between two calls: what all caches share, and recurrent states."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attn_core import masks
from attn_core.contract import check_integers, check_lengths, kind


class Cache:
    """The past of a batch of sequences in one attention layer.

    ``lengths (B,)`` says how many tokens each row holds; only the cache itself changes it.
    """

    def __init__(self, counts: list[int], device: torch.device | str | None) -> None:
        self.lengths = torch.tensor(counts, dtype=torch.long, device=device)
        # The same numbers in Python, so that asking for them never waits for a GPU.
        self._counts = counts

    @property
    def longest(self) -> int:
        """How many tokens the longest row holds."""
        return max(self._counts)

    @property
    def uniform(self) -> bool:
        """Whether all rows hold equally many tokens."""
        return min(self._counts) == max(self._counts)

    @property
    def before(self) -> int | Tensor:
        """How many tokens come before each row's next one: one number if all rows hold equally many, or ``(B,)``."""
        return self.longest if self.uniform else self.lengths

    def attend(self, *args: Any, **options: Any) -> Tensor:
        """What ``KVCache.attend`` does, in caches of keys and values; others refuse."""
        raise ValueError(f"cache: expected one of keys and values, as new_cache gives, got {kind(self)}")

    def reserve(self, tokens: int) -> None:
        """Make sure that each row has room for so many more tokens, where room is set aside in advance."""

    def truncate(self, lengths: Tensor) -> None:
        """Forget all but the first ``lengths[b]`` tokens of each row b, ``lengths (B,)`` integers."""
        masks.length_mask(lengths, self.longest)  # for its errors
        if lengths.shape != self.lengths.shape or bool((lengths.to(self.lengths) > self.lengths).any()):
            raise ValueError(f"lengths: expected at most {self._counts} tokens, got {lengths.tolist()}")
        self.lengths, self._counts = lengths.to(self.lengths, copy=True), lengths.tolist()

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order and each as often as it is named; forget the others."""
        check_integers("rows", rows, axes=1)
        chosen, batch = rows.tolist(), len(self._counts)
        if not chosen or min(chosen) < 0 or max(chosen) >= batch:
            raise ValueError(f"rows: expected rows from 0 to {batch - 1}, at least one, got {chosen}")
        self.lengths, self._counts = self.lengths[rows.to(self.lengths.device)], [self._counts[row] for row in chosen]

    def _grown(self, tokens: int, lengths: Tensor | None) -> list[int]:
        """The rows' counts once ``tokens`` more have come, or ``lengths (B,)`` of them; checks ``lengths``."""
        if lengths is None:
            return [count + tokens for count in self._counts]
        masks.length_mask(lengths, tokens)  # for its errors
        check_lengths(lengths, len(self._counts))
        return [count + new for count, new in zip(self._counts, lengths.tolist(), strict=True)]

    def _grow(self, counts: list[int], added: int | Tensor) -> None:
        self.lengths = self.lengths + (added.to(self.lengths) if isinstance(added, Tensor) else added)
        self._counts = counts


class RecurrentState(Cache):
    """A cache that keeps sums in place of keys and values: a tuple of tensors, one row of the batch each.

    ``layer`` is the one whose sums it keeps. A sum cannot be taken apart again, so ``truncate`` takes back the last
    call, as a call that failed needs it, and nothing before it.
    """

    def __init__(self, layer: nn.Module, state: tuple[Tensor, ...]) -> None:
        super().__init__([0] * len(state[0]), state[0].device)
        self.layer, self.state = layer, state
        self._before = self.lengths, state

    def advance(self, state: tuple[Tensor, ...], tokens: int, lengths: Tensor | None = None) -> None:
        """Put in the state after each row's next ``tokens``, or after the first ``lengths (B,)`` of them."""
        counts = self._grown(tokens, lengths)
        self._before, self.state = (self.lengths, self.state), state
        self._grow(counts, tokens if lengths is None else lengths)

    def truncate(self, lengths: Tensor) -> None:
        """Take back the last call, if these are the ``lengths (B,)`` before it; those of now change nothing."""
        masks.length_mask(lengths, self.longest)  # for its errors
        held, state = self._before
        if torch.equal(lengths.to(held), held):
            super().truncate(lengths)
            self.state = state
        elif not torch.equal(lengths.to(held), self.lengths):
            expected = f"{held.tolist()}, those before the last call, since sums cannot be divided"
            raise ValueError(f"lengths: expected {expected}, got {lengths.tolist()}")

    def reorder(self, rows: Tensor) -> None:
        """Choose rows, as ``Cache`` says."""
        super().reorder(rows)
        self.state = tuple(x[rows.to(x.device)] for x in self.state)
        self._before = self.lengths, self.state


@contextmanager
def rollback_on_error(caches: Sequence[Cache]) -> Iterator[None]:
    """Let all caches grow inside, or none: if anything is raised, each forgets what was added since the start."""
    held = [cache.lengths for cache in caches]
    try:
        yield
    except BaseException:  # an interrupted cell of a notebook, too
        for cache, lengths in zip(caches, held, strict=True):
            cache.truncate(lengths)
        raise


def check_like(name: str, new: Tensor, store: Tensor, owner: str) -> None:
    """Check that ``new`` has the dtype and device of ``store`` and requires no gradient."""
    if new.dtype != store.dtype or new.device != store.device:
        expected = f"{owner} {store.dtype} on {store.device}"
        raise ValueError(f"{name}: expected {expected}, got {new.dtype} on {new.device}")
    if new.requires_grad:
        raise ValueError(f"{name}: expected no gradient, since a cache passes none back: use torch.no_grad()")
