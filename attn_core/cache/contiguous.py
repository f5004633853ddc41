"""The contiguous key-value cache: one tensor of keys and one of values, with room set aside for each row."""

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.cache.protocol import KeyValueCache, check_tokens
from attn_core.contract import check_integer


class KVCache(KeyValueCache):
    """Keys and values of one attention layer in two tensors, ``(B, G, capacity, D)`` and ``(B, G, capacity, Dv)``.

    Each row of the batch fills its own slots from 0 on, so slot j holds the row's token j, and rows may differ in
    length. The room for ``capacity`` tokens a row is set aside at once; ``reserve`` gives more. The cache follows the
    protocol of ``KeyValueCache``; what ``append`` returns are views of the two tensors. ``value_dim`` is 0 where keys
    serve as values, too, as in latent attention.

    Raises:
        ValueError: if a size is below 1 (``value_dim``: below 0).

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
        sizes = {"batch_size": batch_size, "num_kv_heads": num_kv_heads, "capacity": capacity, "head_dim": head_dim}
        for name, size in sizes.items():
            check_integer(name, size)
        check_integer("value_dim", value_dim, at_least=0)
        super().__init__([0] * batch_size, device)
        # Zeros, not whatever lay in memory: a masked slot has weight 0, and 0 times NaN is NaN.
        with torch.inference_mode(False):  # what inference mode makes could not be written to outside of it
            self.keys = torch.zeros(batch_size, num_kv_heads, capacity, head_dim, dtype=dtype, device=device)
            self.values = torch.zeros(batch_size, num_kv_heads, capacity, value_dim, dtype=dtype, device=device)

    @property
    def capacity(self) -> int:
        """How many tokens a row has room for."""
        return self.keys.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes set aside for keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def append(self, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Add each row's next tokens, as ``KeyValueCache`` says; raises also where there is no room for them."""
        check_tokens(k, v, len(self._counts), self.keys, self.values)
        tokens = k.shape[2]
        counts, before = self._grown(tokens, lengths), self.longest
        longest = max(counts)
        if longest > self.capacity:
            raise ValueError(
                f"k: expected at most {self.capacity} tokens a row, the cache's capacity, got {longest} "
                f"with the {self._counts[counts.index(longest)]} that are cached"
            )
        if lengths is None and self.uniform:  # half the time of an assignment to a slice
            self.keys.narrow(2, before, tokens).copy_(k)
            self.values.narrow(2, before, tokens).copy_(v)
        else:
            row, column, slot = self._new(tokens, lengths)
            self.keys[row, :, slot] = k[row, :, column]
            self.values[row, :, slot] = v[row, :, column]
        self._grow(counts, tokens if lengths is None else lengths)
        return self.keys.narrow(2, 0, longest), self.values.narrow(2, 0, longest)

    def reserve(self, tokens: int) -> None:
        """Make sure that each row has room for so many more tokens: where it has not, at least double the capacity."""
        if self.longest + tokens > self.capacity:
            more = max(self.capacity, self.longest + tokens - self.capacity)
            with torch.inference_mode(False):
                self.keys, self.values = (functional.pad(store, (0, 0, 0, more)) for store in (self.keys, self.values))

    def reorder(self, rows: Tensor) -> None:
        """Choose rows, as ``Cache`` says."""
        super().reorder(rows)
        with torch.inference_mode(False):
            rows = rows.to(self.keys.device)
            self.keys, self.values = self.keys[rows], self.values[rows]
