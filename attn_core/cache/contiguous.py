"""The contiguous key-value cache: one tensor of keys and one of values, with room set aside for each row."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_core import masks
from attn_core.cache.protocol import Cache, check_like
from attn_core.contract import check_integer, check_mask, kind


class KVCache(Cache):
    """Keys and values of one attention layer in two tensors, ``(B, G, capacity, D)`` and ``(B, G, capacity, Dv)``.

    Slot j of a row holds the row's token j, and rows may differ in length. The room for ``capacity`` tokens a row is
    set aside at once; ``reserve`` gives more. ``value_dim`` is 0 if keys serve as values, too, as in latent attention.

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

    def attend(
        self,
        layer: Any,
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
        tokens count, if ``lengths (B,)`` are given. In ``mask`` and ``bias``, S is the cache's ``longest`` after this
        call. Returns what the ``attend_heads`` of ``layer`` does; an ``aligned_only`` mechanism refuses rows of unequal
        lengths.
        """
        held, aligned = self.lengths, self.uniform and lengths is None
        mechanism, own = layer.mechanism, q is k
        if not aligned and getattr(mechanism, "aligned_only", False):
            name, counts = ("cache", held) if lengths is None else ("lengths", lengths)
            expected = f"rows of one length without padding, as {type(mechanism).__name__} needs"
            raise ValueError(f"{name}: expected {expected}, got {counts}")
        k, v = self.append(k, v, lengths)
        if own and getattr(mechanism, "shared_only", False):
            # It needs the same tokens as queries and as keys. The outputs of the earlier ones are known already.
            held_now = masks.length_mask(self.lengths, k.shape[2])[:, None, None]
            mask = held_now if mask is None else mask & held_now
            out = layer.attend_heads(k, k, v, mask=mask, bias=bias, causal=True)
            last = (held[:, None] + torch.arange(q.shape[2], device=held.device)).clamp(max=k.shape[2] - 1)
            return out.take_along_dim(last[:, None, :, None], dim=2)
        if aligned:
            return layer.attend_heads(q, k, v, mask=mask, bias=bias, causal=True)
        past = masks.causal(q.shape[2], k.shape[2], held)  # the last query is not aligned with the last key
        if mask is not None:
            check_mask(mask, (*q.shape[:3], k.shape[2]), k.device)
            past = past & mask
        return layer.attend_heads(q, k, v, mask=past, bias=bias, before=held)

    def append(self, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Add each row's next tokens; return the keys and values of all tokens so far, views of the two tensors.

        Shapes: ``k (B, G, T, D)``, ``v (B, G, T, Dv)``; with ``lengths (B,)``, integers from 0 to T, only the first
        ``lengths[b]`` tokens of row b count, and the rest is padding. Returns ``(B, G, longest, D)`` and
        ``(B, G, longest, Dv)``. In shorter rows, the slots past the row's length hold finite numbers without meaning;
        ``masks.causal`` with the old lengths as offset hides them. If there is no room, the cache is as it was.
        """
        batch = len(self._counts)
        for name, new, store in (("k", k, self.keys), ("v", v, self.values)):
            heads, size = store.shape[1], store.shape[3]
            shape = new.shape if isinstance(new, Tensor) else ()
            if len(shape) != 4 or (shape[0], shape[1], shape[3]) != (batch, heads, size):
                raise ValueError(f"{name}: expected shape ({batch}, {heads}, T, {size}), got {kind(new)}")
            check_like(name, new, store, "the cache's")
        tokens = k.shape[2]
        if v.shape[2] != tokens:
            raise ValueError(f"v: expected {tokens} tokens, as many as k, got {v.shape[2]}")
        counts = self._grown(tokens, lengths)
        longest = max(counts)
        if longest > self.capacity:
            found = f"{longest} with the {self._counts[counts.index(longest)]} that are cached"
            raise ValueError(f"k: expected at most {self.capacity} tokens a row, the cache's capacity, got {found}")
        if lengths is None and self.uniform:
            return self.extend(k, v)
        device = self.lengths.device
        column = torch.arange(tokens, device=device).expand(batch, tokens)
        row = torch.arange(batch, device=device)[:, None].expand_as(column)
        if lengths is not None:
            counted = masks.length_mask(lengths, tokens).to(device)
            row, column = row[counted], column[counted]
        slot = self.lengths[row] + column
        self.keys[row, :, slot] = k[row, :, column]
        self.values[row, :, slot] = v[row, :, column]
        self._grow(counts, tokens if lengths is None else lengths)
        return self.keys.narrow(2, 0, longest), self.values.narrow(2, 0, longest)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """``append`` where all rows hold equally many, without its checks."""
        before, tokens = self._counts[0], k.shape[2]
        self.keys.narrow(2, before, tokens).copy_(k)  # half the time of an assignment to a slice
        self.values.narrow(2, before, tokens).copy_(v)
        self._grow([before + tokens] * len(self._counts), tokens)
        return self.keys.narrow(2, 0, before + tokens), self.values.narrow(2, 0, before + tokens)

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
