"""Blocks of keys and values in 8 bits."""

from collections.abc import Iterable

import torch
from torch import Tensor

from attn_core.cache.paged import BlockPool


class QuantisedBlockPool(BlockPool):
    """A ``BlockPool`` that stores integers of 8 bits, and for each block and head one scale in float32.

    An entry is stored as the integer nearest to its quotient by the scale, which is the largest magnitude of the block
    and head over 127. A larger one that comes later makes the scale larger, and the block is rounded once more. So an
    entry is off by at most half the scale for each time that its block was rounded: once if the block was written in
    one call. Tokens are given and read in ``dtype``.

    Raises ``ValueError`` as ``BlockPool`` does, and if ``dtype`` is not floating.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if not dtype.is_floating_point:
            raise ValueError(f"dtype: expected a floating one, in which tokens are given and read, got {dtype}")
        super().__init__(num_blocks, block_size, num_kv_heads, head_dim, dtype=torch.int8, device=device)
        self.like = self.like.to(dtype)
        with torch.inference_mode(False):
            self.key_scales, self.value_scales = torch.zeros(2, num_blocks, num_kv_heads, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes set aside for keys, values and scales."""
        return super().nbytes + self.key_scales.nbytes + self.value_scales.nbytes

    def copy(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copy whole blocks with their scales, as ``BlockPool.copy``."""
        copies = list(copies)
        super().copy(copies)
        for source, target in copies:
            for scales in (self.key_scales, self.value_scales):
                scales[target] = scales[source]

    def read(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The blocks of the table in ``dtype``, and the table in which they are numbered anew."""
        used, numbers = table.unique(return_inverse=True)
        keys, values = (
            (store[used] * scales[used][..., None, None]).to(self.like.dtype)
            for store, scales in ((self.keys, self.key_scales), (self.values, self.value_scales))
        )
        return keys, values, numbers

    def _store(self, blocks: Tensor, offsets: Tensor, k: Tensor, v: Tensor) -> None:
        used, numbers = blocks.unique(return_inverse=True)
        for store, scales, new in ((self.keys, self.key_scales, k), (self.values, self.value_scales, v)):
            before = scales[used]
            before[numbers[offsets == 0]] = 0.0  # a write to the first slot begins the block anew
            needed = new.abs().amax(-1).float() / 127
            after = before.scatter_reduce(0, numbers[:, None].expand_as(needed), needed, "amax")
            shrunk = before / after.clamp(min=torch.finfo(torch.float32).tiny)
            store[used] = (store[used] * shrunk[..., None, None]).round().to(torch.int8)
            scales[used] = after
            each = after[numbers].clamp(min=torch.finfo(torch.float32).tiny)[..., None]
            store[blocks, :, offsets] = (new / each).round().to(torch.int8)
