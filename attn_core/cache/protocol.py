"""What a layer keeps between two calls: the protocol of all caches, and what they share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

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

    def _new(self, tokens: int, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Of each new token that counts: its row, its index among the row's ``tokens`` new ones, and its slot."""
        column = torch.arange(tokens, device=self.lengths.device).expand(len(self._counts), tokens)
        row = torch.arange(len(self._counts), device=column.device)[:, None].expand_as(column)
        if lengths is not None:
            counted = masks.length_mask(lengths, tokens).to(column.device)
            row, column = row[counted], column[counted]
        return row, column, self.lengths[row] + column

    def _grow(self, counts: list[int], added: int | Tensor) -> None:
        self.lengths = self.lengths + (added.to(self.lengths) if isinstance(added, Tensor) else added)
        self._counts = counts


class KeyValueCache(Cache):
    """A cache of keys and values, to which the layer's mechanism attends."""

    def append(self, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Add each row's next tokens; return the keys and values of all tokens so far.

        Shapes: ``k (B, G, T, D)``, ``v (B, G, T, Dv)``; with ``lengths (B,)``, integers from 0 to T, only the first
        ``lengths[b]`` tokens of row b count, and the rest is padding. Returns ``(B, G, longest, D)`` and
        ``(B, G, longest, Dv)``. In shorter rows, the slots past the row's length hold finite numbers without meaning;
        ``masks.causal`` with the old lengths as offset hides them from every query that counts.

        Raises:
            ValueError: if ``k``, ``v`` or ``lengths`` do not fit the cache. The cache is then as it was.
        """
        raise NotImplementedError


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


def check_tokens(k: Tensor, v: Tensor, batch: int, keys: Tensor, values: Tensor) -> None:
    """Check that ``k`` and ``v`` are tokens of ``batch`` rows for stores ``(…, G, …, D)`` and ``(…, G, …, Dv)``."""
    for name, new, store in (("k", k, keys), ("v", v, values)):
        heads, size = store.shape[1], store.shape[3]
        shape = new.shape if isinstance(new, Tensor) else ()
        if len(shape) != 4 or (shape[0], shape[1], shape[3]) != (batch, heads, size):
            raise ValueError(f"{name}: expected shape ({batch}, {heads}, T, {size}), got {kind(new)}")
        check_like(name, new, store, "the cache's")
    if v.shape[2] != k.shape[2]:
        raise ValueError(f"v: expected {k.shape[2]} tokens, as many as k, got {v.shape[2]}")


def check_like(name: str, new: Tensor, store: Tensor, owner: str) -> None:
    """Check that ``new`` has the dtype and device of ``store`` and requires no gradient."""
    if new.dtype != store.dtype or new.device != store.device:
        expected = f"{owner} {store.dtype} on {store.device}"
        raise ValueError(f"{name}: expected {expected}, got {new.dtype} on {new.device}")
    if new.requires_grad:
        raise ValueError(f"{name}: expected no gradient, since a cache passes none back: use torch.no_grad()")


def check_pools(tables: Any, pools: Sequence[Any]) -> None:
    """Each ``BlockPool`` has the blocks that the ``BlockTables`` count."""
    for pool in pools:
        if (len(pool.keys), pool.keys.shape[2]) != (tables.num_blocks, tables.block_size):
            expected = f"{tables.num_blocks} blocks of {tables.block_size} tokens, as the tables have"
            raise ValueError(f"pools: expected {expected}, got keys of shape {tuple(pool.keys.shape)}")
