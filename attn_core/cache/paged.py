"""The paged key-value cache: keys and values in blocks, and attention that reads them through a block table.

Which block holds which token is decided in ``block_tables``. One ``BlockTables`` serves a whole model, one
``BlockPool`` each of its layers.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from attn_core import masks
from attn_core.cache.block_tables import BlockTables, StreamingWindow
from attn_core.cache.paged_tiles import seen, tiled_attention
from attn_core.cache.protocol import check_like
from attn_core.contract import check_integer, check_integers, check_lengths, check_scale, kind, without_autocast
from attn_core.device import in_tiles
from attn_core.mechanisms.dense import attention


def gathered_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    window: StreamingWindow | None = None,
) -> Tensor:
    """``paged_attention`` in its plain form: gather each row's blocks into one tensor, then dense attention."""
    lengths_there = lengths.to(q.device, non_blocking=True)
    longest, block_size = max(lengths.tolist(), default=0), keys.shape[2]
    table = table[:, : -(-longest // block_size)]
    slots = torch.arange(table.shape[1] * block_size, device=q.device)
    used = slots < lengths_there[:, None]
    blocks = table.where(used[:, ::block_size], 0)  # entries that are not used name block 0, which always exists
    # (B, M, G, block_size, ·) to (B, G, S, ·), with zeros where nothing of the row lies
    k, v = (store[blocks].transpose(1, 2).flatten(2, 3).where(used[:, None, :, None], 0.0) for store in (keys, values))
    ends = lengths_there[:, None] + torch.arange(1 - q.shape[2], 1, device=q.device)
    return attention(q, k, v, mask=seen(slots, ends, window)[:, None], scale=scale)


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    window: StreamingWindow | None = None,
) -> Tensor:
    """Causal softmax attention of each row's last tokens to all of the row's tokens, read through its block table.

    Shapes: ``q (B, H, T, D)``, the queries of each row's last T tokens; ``keys (N, G, block_size, D)`` and ``values
    (N, G, block_size, Dv)``, a pool's; ``table (B, M)``, integers: the row's blocks in the order of its tokens;
    ``lengths (B,)``, integers: each row's tokens, those of ``q`` included. Returns ``out (B, H, T, Dv)``.

    Query i of T sees its row's first ``lengths[b] − T + i + 1`` tokens; one that sees none gets zeros. So a row with
    fewer than T new tokens is padded in front, and what comes out there has no meaning. Only the first
    ``ceil(lengths[b] / block_size)`` entries of a row of the table are used, and no slot past the row's length: the
    others may hold anything. For inference: no gradient is passed back.

    With a ``window`` each query sees only the first and the last of these tokens. Blocks that it hides from all queries
    (``StreamingWindow.unseen`` of the tokens before them) may be left out of a row's table, and of its length.

    On a CPU the cache is never gathered as a whole: keys, then values, come in tiles of at most 2 MiB in float32 (one
    block where that is more), and so do the scores. Half precision is converted tile by tile. On CUDA, few queries read
    the blocks where they lie (``paged_triton.split_attention``). Elsewhere all rows are gathered at once, as in
    ``gathered_attention``. With ``lengths`` on the CPU nothing waits for the device.

    Raises:
        ValueError: if a shape, dtype or device does not fit, a length is out of range, or a tensor requires a gradient.
        ImportError: if q is on a CUDA device and the package ``triton`` is not installed.

    Source: Kwon et al. 2023, section 4.1 (attention by blocks); Milakov and Gimelshein 2018 (the sum over tiles).
    """
    _check(q, keys, values, table, lengths)
    check_scale(scale)
    scale = 1.0 / math.sqrt(q.shape[3]) if scale is None else scale
    if q.device.type == "cuda":
        from attn_core.cache.paged_triton import split_attention, suits  # triton may be absent

        if suits(q, keys, values):
            with torch.no_grad():
                return split_attention(q, keys, values, table, lengths, scale, window=window)
    if not in_tiles(q.device):
        with torch.no_grad(), without_autocast(q):
            return gathered_attention(q, keys, values, table, lengths, scale=scale, window=window)
    return tiled_attention(q, keys, values, table, lengths, scale, window)


def _check(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor) -> None:
    for name, x in (("q", q), ("keys", keys), ("values", values)):
        if not isinstance(x, Tensor) or not x.dtype.is_floating_point or x.dim() != 4:
            raise ValueError(f"{name}: expected a floating tensor with 4 axes, got {kind(x)}")
        check_like(name, x, q, "q's")
    (batch, heads, _, size), (_, groups, block_size, key_size) = q.shape, keys.shape
    if key_size != size or groups == 0 or heads % groups:
        expected = f"a pool's shape (N, G, block_size, {size}), G dividing q's {heads} heads"
        raise ValueError(f"keys: expected {expected}, got {tuple(keys.shape)}")
    if values.shape[:3] != keys.shape[:3]:
        raise ValueError(f"values: expected shape {(*keys.shape[:3], 'Dv')}, as keys, got {tuple(values.shape)}")
    check_integers("table", table, axes=2)
    if len(table) != batch:
        raise ValueError(f"table: expected {batch} rows, as q has, got {len(table)}")
    masks.length_mask(lengths, table.shape[1] * block_size)  # for its errors
    check_lengths(lengths, batch)


def _check_range(name: str, blocks: Tensor, end: int) -> None:
    """Every one of ``blocks`` exists: PyTorch would take −1 for the last one."""
    if blocks.numel() and not 0 <= (low := int(blocks.min())) <= (high := int(blocks.max())) < end:
        raise ValueError(f"{name}: expected blocks from 0 to {end - 1}, got {low if low < 0 else high}")


class BlockPool:
    """Keys and values of one attention layer in blocks: ``(num_blocks, G, block_size, D)`` and ``(…, Dv)``.

    ``value_dim`` is 0 where keys serve as values, too, as in ``KVCache``.

    Raises:
        ValueError: if a size is below 1 (``value_dim``: below 0).

    Source: Kwon et al. 2023, section 4.2.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        value_dim: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        value_dim = head_dim if value_dim is None else value_dim
        sizes = {"num_blocks": num_blocks, "block_size": block_size, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
        for name, size in sizes.items():
            check_integer(name, size)
        check_integer("value_dim", value_dim, at_least=0)
        # Whatever lies in memory may stay there: a slot is written before it is read.
        with torch.inference_mode(False):  # what inference mode makes could not be written to outside of it
            self.keys = torch.empty(num_blocks, num_kv_heads, block_size, head_dim, dtype=dtype, device=device)
            self.values = torch.empty(num_blocks, num_kv_heads, block_size, value_dim, dtype=dtype, device=device)
        self.like = self.keys.new_empty(0)  # of the dtype and device of tokens

    @property
    def nbytes(self) -> int:
        """Bytes set aside for keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def copy(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copy whole blocks, pairs (source block, target block), one after the other.

        Raises:
            ValueError: if a block does not exist. Nothing is copied then.
        """
        copies = list(copies)
        _check_range("copies", torch.tensor(copies, dtype=torch.long), len(self.keys))
        for source, target in copies:  # in turn, since a target may be the source of a later copy
            for store in (self.keys, self.values):
                store[target].copy_(store[source])

    def write(self, slots: Tensor | Sequence[tuple[int, int]], k: Tensor, v: Tensor) -> None:
        """Put each token's keys and values into its slot.

        Shapes: ``slots (N, 2)``, a block and an offset for each of N tokens, as ``BlockTables.append`` gives them
        (several layers convert them once, ``torch.tensor(slots)``); ``k (N, G, D)``, ``v (N, G, Dv)``, which for a
        batch ``(B, G, T, D)`` is ``k.transpose(1, 2).flatten(0, 1)``.

        Raises:
            ValueError: if ``k`` or ``v`` has another shape, dtype or device or requires a gradient, or a block does not
                exist (on a GPU this is left to indexing, lest every step wait for the device). Nothing is written then.
        """
        blocks, offsets = torch.as_tensor(slots, dtype=torch.long, device=self.keys.device).view(-1, 2).unbind(1)
        for name, new, store in (("k", k, self.keys), ("v", v, self.values)):
            shape = (len(blocks), store.shape[1], store.shape[3])
            if new.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, one row a slot, got {kind(new)}")
            check_like(name, new, self.like, "the pool's")
        if blocks.device.type == "cpu":
            _check_range("slots", blocks, len(self.keys))
        self._store(blocks, offsets, k, v)

    def read(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and table for ``paged_attention`` of these rows: here the pool's own."""
        return self.keys, self.values, table

    def _store(self, blocks: Tensor, offsets: Tensor, k: Tensor, v: Tensor) -> None:
        self.keys[blocks, :, offsets] = k
        self.values[blocks, :, offsets] = v


def as_tensors(
    tables: BlockTables, sequences: Sequence[int], *, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """The batch of these sequences as ``paged_attention`` takes it: ``table (B, M)`` and ``lengths (B,)``.

    M is the number of blocks of the longest; the ends of shorter rows hold −1. ``lengths`` stay on the CPU, so that
    reading them never waits for a GPU.

    Raises:
        ValueError: if a sequence does not exist.
    """
    rows = [tables.table(sequence) for sequence in sequences]
    width = max(map(len, rows), default=0)
    table = torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.long, device=device)
    return table.view(len(rows), width), torch.tensor([tables.length(s) for s in sequences], dtype=torch.long)
