"""What a layer keeps between two calls: the protocol of all caches, and what they share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from attn_core import masks
from attn_core.contract import check_integers, check_lengths, kind


class CachedLayer(Protocol):
    """What a cache knows of the layer that calls it."""

    mechanism: Any
    positions: Any

    def attend_heads(self, q: Tensor, k: Tensor, v: Tensor, *, before: Tensor | None = None, **options: Any) -> Tensor:
        """Attend with ``options`` of the contract; ``before (B,)`` counts the keys before each row's first query."""


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

    def attend(
        self,
        layer: CachedLayer,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Add each row's next tokens, and attend from each of them to all tokens of its row up to it.

        Shapes: ``q (B, H, T, D)``, ``k (B, G, T, D)``, ``v (B, G, T, Dv)``; of row b, only the first ``lengths[b]``
        tokens count, where ``lengths (B,)`` are given. Returns what the layer's ``attend_heads`` does.

        Raises:
            ValueError: if an argument does not fit the cache, or the cache not the layer's mechanism.
        """
        raise ValueError(f"cache: expected one of keys and values, as new_cache gives, got {kind(self)}")

    def reserve(self, tokens: int) -> None:
        """Make sure that each row has room for so many more tokens, where room is set aside in advance."""

    def truncate(self, lengths: Tensor) -> None:
        """Forget all but the first ``lengths[b]`` tokens of each row b, ``lengths (B,)`` integers.

        Raises:
            ValueError: if ``lengths`` has another shape or dtype, or is greater than what a row holds.
        """
        masks.length_mask(lengths, self.longest)  # for its errors
        if lengths.shape != self.lengths.shape or bool((lengths.to(self.lengths) > self.lengths).any()):
            raise ValueError(f"lengths: expected at most {self._counts} tokens, got {lengths.tolist()}")
        self.lengths, self._counts = lengths.to(self.lengths, copy=True), lengths.tolist()

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order and each as often as it is named; forget the others.

        Raises:
            ValueError: if ``rows`` is not an integer tensor of one axis, is empty, or names a row that does not exist.
        """
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


@contextmanager
def rollback_on_error(caches: Sequence[Cache]) -> Iterator[None]:
    """Let all caches grow inside, or none: where something is raised, each forgets what was added since the start."""
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
