"""The contiguous key-value cache: what attention has read so far, kept for the tokens to come."""

import torch
from torch import Tensor
from torch.nn import functional

from attn_core import masks
from attn_core.contract import check_size, kind


class KVCache:
    """Keys and values of one attention layer in two tensors, ``(B, G, capacity, D)`` and ``(B, G, capacity, Dv)``.

    Each row of the batch fills its own slots from 0 on, so slot j holds the row's token j, and rows may differ in
    length. The room is reserved at once: ``capacity`` tokens a row.

    Attributes: ``lengths (B,)``, the tokens that each row holds; ``longest``, the greatest of them; ``uniform``,
    whether they are all equal. Only reading is meant: ``append`` and ``select`` keep them.

    Raises:
        ValueError: a size below 1, or a dtype that is not floating.

    Source: Shazeer 2019, section 2.4 (incremental decoding).
    """

    def __init__(
        self,
        batch_size: int,
        num_kv_heads: int,
        capacity: int,
        head_dim: int,
        *,
        value_dim: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        value_dim = head_dim if value_dim is None else value_dim
        sizes = {"batch_size": batch_size, "num_kv_heads": num_kv_heads, "capacity": capacity}
        for name, size in {**sizes, "head_dim": head_dim, "value_dim": value_dim}.items():
            check_size(name, size)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ValueError(f"dtype: expected a floating dtype, got {dtype}")
        # Zeros, not whatever lay in memory: a hidden slot has weight 0, and 0 times NaN is NaN.
        self.keys = torch.zeros(batch_size, num_kv_heads, capacity, head_dim, dtype=dtype, device=device)
        self.values = torch.zeros(batch_size, num_kv_heads, capacity, value_dim, dtype=dtype, device=device)
        self.lengths = torch.zeros(batch_size, dtype=torch.long, device=device)
        # The same numbers in Python, so that asking for them never waits for a GPU.
        self._counts = [0] * batch_size

    @property
    def capacity(self) -> int:
        """How many tokens a row has room for."""
        return self.keys.shape[2]

    @property
    def longest(self) -> int:
        """How many tokens the longest row holds."""
        return max(self._counts)

    @property
    def uniform(self) -> bool:
        """Whether all rows hold equally many tokens."""
        return min(self._counts) == max(self._counts)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def append(self, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Add each row's next tokens; return the keys and values of all tokens so far.

        Shapes: ``k (B, G, T, D)``, ``v (B, G, T, Dv)``; with ``lengths (B,)``, integers from 0 to T, only the first
        ``lengths[b]`` tokens of row b count, and the rest is padding. Returns views ``(B, G, longest, D)`` and
        ``(B, G, longest, Dv)``: in shorter rows the slots past the row's length hold nothing of meaning, which
        ``masks.causal`` with the old lengths as offset hides from every true query.

        Raises:
            ValueError: ``k`` or ``v`` has another shape, dtype or device than the cache; ``lengths`` are not as above;
                or there is no room. The cache is then as it was.
        """
        self._check(k, v)
        batch, _, tokens, _ = k.shape
        if lengths is None:
            counts = [count + tokens for count in self._counts]
            even = self.uniform
        else:
            allowed = masks.length_mask(lengths, tokens)
            if allowed.shape != (batch, tokens):
                raise ValueError(f"lengths: expected shape ({batch},), one length a row, got {tuple(lengths.shape)}")
            counts = [count + new for count, new in zip(self._counts, lengths.tolist(), strict=True)]
            even = False
        before, longest = self.longest, max(counts)
        if longest > self.capacity:
            raise ValueError(
                f"k: expected at most {self.capacity} tokens a row, the cache's capacity, got {longest} "
                f"with the {self._counts[counts.index(longest)]} that are cached"
            )
        for store, new in ((self.keys, k), (self.values, v)):
            if even:
                store.narrow(2, before, tokens).copy_(new)  # half the time of an assignment to a slice
                continue
            row = torch.arange(batch, device=store.device)[:, None].expand(batch, tokens)
            slot = self.lengths[:, None] + torch.arange(tokens, device=store.device)
            new = new.transpose(1, 2)  # (B, T, G, D), as rows and slots index the store
            if lengths is not None:
                allowed = allowed.to(store.device)
                row, slot, new = row[allowed], slot[allowed], new[allowed]
            store[row, :, slot] = new
        self.lengths = self.lengths + (tokens if lengths is None else lengths.to(self.lengths))
        self._counts = counts
        return self.keys.narrow(2, 0, longest), self.values.narrow(2, 0, longest)

    def truncate(self, lengths: Tensor) -> None:
        """Forget all but the first ``lengths[b]`` tokens of each row b, ``lengths (B,)`` integers.

        Raises:
            ValueError: ``lengths`` has another shape or kind, or asks for more tokens than a row holds.
        """
        masks.length_mask(lengths, self.longest)  # for its errors
        if lengths.shape != self.lengths.shape or bool((lengths.to(self.lengths) > self.lengths).any()):
            raise ValueError(f"lengths: expected at most {self._counts} tokens, got {lengths.tolist()}")
        self.lengths, self._counts = lengths.to(self.lengths), lengths.tolist()

    def select(self, rows: Tensor) -> "KVCache":
        """A cache of these rows of the batch, in this order, each as often as it is named: a copy.

        Raises:
            ValueError: ``rows`` is not an integer tensor of one axis, or names a row that is not there.
        """
        batch = len(self._counts)
        if not isinstance(rows, Tensor) or rows.dtype not in (torch.int64, torch.int32) or rows.dim() != 1:
            raise ValueError(f"rows: expected an integer tensor of shape (n,), got {kind(rows)}")
        chosen = rows.tolist()
        if not chosen or min(chosen) < 0 or max(chosen) >= batch:
            raise ValueError(f"rows: expected rows from 0 to {batch - 1}, at least one, got {chosen}")
        picked = object.__new__(KVCache)
        rows = rows.to(self.keys.device)
        picked.keys, picked.values, picked.lengths = self.keys[rows], self.values[rows], self.lengths[rows]
        picked._counts = [self._counts[row] for row in chosen]
        return picked

    def enlarged(self, capacity: int) -> "KVCache":
        """A cache with room for ``capacity`` tokens a row that holds what this one does: a copy.

        Raises:
            ValueError: ``capacity`` is below this cache's.
        """
        if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < self.capacity:
            raise ValueError(f"capacity: expected at least this cache's, {self.capacity}, got {capacity!r}")
        larger = object.__new__(KVCache)
        more = (0, 0, 0, capacity - self.capacity)
        larger.keys, larger.values = (functional.pad(store, more) for store in (self.keys, self.values))
        larger.lengths, larger._counts = self.lengths, list(self._counts)
        return larger

    def __repr__(self) -> str:
        batch, heads, capacity, size = self.keys.shape
        held = self.longest if self.uniform else self._counts
        return f"KVCache({batch} rows, {heads} key-value heads of {size}, {held} of {capacity} tokens)"

    def _check(self, k: Tensor, v: Tensor) -> None:
        for name, new, store in (("k", k, self.keys), ("v", v, self.values)):
            batch, heads, _, size = store.shape
            shape = new.shape if isinstance(new, Tensor) else ()
            if len(shape) != 4 or shape[0] != batch or shape[1] != heads or shape[3] != size:
                raise ValueError(f"{name}: expected shape ({batch}, {heads}, T, {size}), got {kind(new)}")
            if new.dtype != store.dtype or new.device != store.device:
                raise ValueError(
                    f"{name}: expected the cache's {store.dtype} on {store.device}, got {new.dtype} on {new.device}"
                )
            if new.requires_grad:
                raise ValueError(f"{name}: expected no gradient, since a cache passes none back: use torch.no_grad()")
        if v.shape[2] != k.shape[2]:
            raise ValueError(f"v: expected {k.shape[2]} tokens, as many as k, got {v.shape[2]}")
