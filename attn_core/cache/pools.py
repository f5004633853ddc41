"""Where keys and values lie: blocks of one layer's, as they are or in 8 bits.

One ``BlockTables`` says for a whole model which block holds which token, and each layer has a pool of its own.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from attn_core.cache.block_tables import BlockTables
from attn_core.cache.protocol import check_like
from attn_core.contract import check_integer, kind


class BlockPool:
    """Keys and values of one attention layer in blocks: ``(num_blocks, G, block_size, D)`` each.

    Source: Kwon et al. 2023, section 4.2.
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
        sizes = {"num_blocks": num_blocks, "num_kv_heads": num_kv_heads, "block_size": block_size, "head_dim": head_dim}
        for name, size in sizes.items():
            check_integer(name, size)
        with torch.inference_mode(False):  # what inference mode makes could not be written to outside of it
            self.like = torch.empty(0, dtype=dtype, device=device)  # of the dtype and device of tokens
            self._allocate(*sizes.values())

    @property
    def nbytes(self) -> int:
        """Bytes set aside for all that the pool holds."""
        return sum(store.nbytes for store in self._stores())

    def copy(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copy whole blocks, pairs (source block, target block), one after the other."""
        copies = list(copies)
        self._check_blocks("copies", torch.tensor(copies, dtype=torch.long))
        for source, target in copies:  # in turn, since a target may be the source of a later copy
            for store in self._stores():
                store[target].copy_(store[source])

    def write(self, slots: Tensor | Sequence[tuple[int, int]], k: Tensor, v: Tensor) -> None:
        """Put each token's keys and values into its slot.

        Shapes: ``slots (N, 2)``, a block and an offset for each of N tokens, as ``BlockTables.append`` gives them
        (several layers convert them once, ``torch.tensor(slots)``); ``k (N, G, D)``, ``v (N, G, D)``, which for a
        batch ``(B, G, T, D)`` is ``k.transpose(1, 2).flatten(0, 1)``. If something does not fit, nothing is written.
        """
        blocks, offsets = torch.as_tensor(slots, dtype=torch.long, device=self.keys.device).view(-1, 2).unbind(1)
        for name, new, store in (("k", k, self.keys), ("v", v, self.values)):
            shape = (len(blocks), store.shape[1], store.shape[3])
            if new.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, one row a slot, got {kind(new)}")
            check_like(name, new, self.like, "the pool's")
        if blocks.device.type == "cpu":  # on a GPU every step would wait for the device; indexing refuses there
            self._check_blocks("slots", blocks)
        self._store(blocks, offsets, k, v)

    def read(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and table for ``paged_attention`` of these rows: here the pool's own."""
        return self.keys, self.values, table

    def _allocate(self, *shape: int) -> None:
        # Whatever lies in memory may stay there: a slot is written before it is read.
        self.keys, self.values = self.like.new_empty(shape), self.like.new_empty(shape)

    def _stores(self) -> tuple[Tensor, ...]:
        return self.keys, self.values

    def _store(self, blocks: Tensor, offsets: Tensor, k: Tensor, v: Tensor) -> None:
        self.keys[blocks, :, offsets] = k
        self.values[blocks, :, offsets] = v

    def _check_blocks(self, name: str, blocks: Tensor) -> None:
        """Every one of ``blocks`` exists: PyTorch would take −1 for the last one."""
        end = len(self.keys)
        if blocks.numel() and not 0 <= (low := int(blocks.min())) <= (high := int(blocks.max())) < end:
            raise ValueError(f"{name}: expected blocks from 0 to {end - 1}, got {low if low < 0 else high}")


class QuantisedBlockPool(BlockPool):
    """A ``BlockPool`` that stores integers of 8 bits, and for each block and head one scale in float32.

    The scale is the largest magnitude of the block and head over 127. If a larger one comes later, the scale grows and
    the block is rounded once more. So an entry is off by at most half the scale for each time that its block was
    rounded: once if the block was written in one call. Tokens are given and read in ``dtype``, a floating one.
    """

    def read(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The blocks of the table in ``dtype``, and the table in which they are numbered anew."""
        used, numbers = table.unique(return_inverse=True)
        keys, values = (
            (store[used] * scales[used][..., None, None]).to(self.like.dtype)
            for store, scales in ((self.keys, self.key_scales), (self.values, self.value_scales))
        )
        return keys, values, numbers

    def _allocate(self, *shape: int) -> None:
        if not self.like.is_floating_point():
            raise ValueError(f"dtype: expected a floating one, as tokens are given and read, got {self.like.dtype}")
        self.keys, self.values = (self.like.new_empty(shape, dtype=torch.int8) for _ in range(2))
        self.key_scales, self.value_scales = self.like.new_zeros(2, *shape[:2], dtype=torch.float32)

    def _stores(self) -> tuple[Tensor, ...]:
        return self.keys, self.values, self.key_scales, self.value_scales

    def _store(self, blocks: Tensor, offsets: Tensor, k: Tensor, v: Tensor) -> None:
        used, numbers = blocks.unique(return_inverse=True)
        tiny = torch.finfo(torch.float32).tiny
        for store, scales, new in ((self.keys, self.key_scales, k), (self.values, self.value_scales, v)):
            before = scales[used]
            before[numbers[offsets == 0]] = 0.0  # a write to the first slot begins the block anew
            needed = new.abs().amax(-1).float() / 127
            after = before.scatter_reduce(0, numbers[:, None].expand_as(needed), needed, "amax")
            shrunk = before / after.clamp(min=tiny)
            store[used] = (store[used] * shrunk[..., None, None]).round().to(torch.int8)
            scales[used] = after
            store[blocks, :, offsets] = (new / after[numbers].clamp(min=tiny)[..., None]).round().to(torch.int8)


def as_tensors(
    tables: BlockTables, sequences: Sequence[int], *, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """The batch of these sequences as ``paged_attention`` takes it: ``table (B, M)`` and ``lengths (B,)``.

    M is the number of blocks of the longest; the ends of shorter rows hold −1. ``lengths`` stay on the CPU, so that
    reading them never waits for a GPU.
    """
    rows = [tables.table(sequence) for sequence in sequences]
    width = max(map(len, rows), default=0)
    table = torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.long, device=device)
    return table.view(len(rows), width), torch.tensor([tables.length(s) for s in sequences], dtype=torch.long)
