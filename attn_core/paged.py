"""The paged key-value cache: keys and values in blocks, and attention that finds them through a block table.

Which block holds what is decided in ``paging``. One ``BlockTables`` serves a whole model, one ``BlockPool`` each layer.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from attn_core.contract import check_scale, check_size, kind, shown
from attn_core.mechanisms.online import OnlineSoftmax
from attn_core.paging import BlockTables

_TILE = 2**19
"""Numbers in a tile of keys, values or scores at most: 2 MiB in float32, which stay in a core's cache."""

_QUERY_TILE = 128
"""Queries of a row at most that walk over the cache together, which bounds what is kept for them."""


class BlockPool:
    """Keys and values of one attention layer in blocks: ``(num_blocks, G, block_size, D)`` and ``(…, Dv)``.

    Raises:
        ValueError: a size below 1, or a dtype that is not floating.

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
        sizes = {"num_blocks": num_blocks, "block_size": block_size, "num_kv_heads": num_kv_heads}
        for name, size in {**sizes, "head_dim": head_dim, "value_dim": value_dim}.items():
            check_size(name, size)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ValueError(f"dtype: expected a floating dtype, got {dtype}")
        # Whatever lies in memory may stay there: a slot is written before it is read.
        self.keys = torch.empty(num_blocks, num_kv_heads, block_size, head_dim, dtype=dtype, device=device)
        self.values = torch.empty(num_blocks, num_kv_heads, block_size, value_dim, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def copy(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copy whole blocks, pairs (source block, target block), one after the other.

        Raises:
            ValueError: what is no pair of blocks, or a block that is not there. Nothing is copied then.
        """
        if not isinstance(copies, Iterable):
            raise ValueError(f"copies: expected pairs (source block, target block), got {shown(copies)}")
        copies = list(copies)
        for pair in copies:
            if not isinstance(pair, tuple | list) or len(pair) != 2 or any(type(block) is not int for block in pair):
                raise ValueError(f"copies: expected pairs (source block, target block), got {shown(pair)}")
            for block in pair:
                if not 0 <= block < len(self.keys):
                    raise ValueError(f"copies: expected blocks from 0 to {len(self.keys) - 1}, got {block}")
        for source, target in copies:  # in turn, since a target may be the source of a later copy
            for store in (self.keys, self.values):
                store[target].copy_(store[source])

    def write(self, slots: Tensor | Sequence[tuple[int, int]], k: Tensor, v: Tensor) -> None:
        """Put each token's keys and values into its slot.

        Shapes: ``slots (N, 2)``, a block and an offset for each of N tokens, as ``BlockTables.append`` gives them
        (several layers convert them once, ``torch.tensor(slots)``); ``k (N, G, D)``, ``v (N, G, Dv)``, which for a
        batch ``(B, G, T, D)`` is ``k.transpose(1, 2).flatten(0, 1)``.

        Raises:
            ValueError: a shape, dtype or device does not fit, a tensor requires a gradient, or a slot is not there
                (on a GPU this is left to indexing, lest every step wait for the device). Nothing is written then.
        """
        try:
            index = torch.as_tensor(slots)
        except (TypeError, ValueError, RuntimeError):  # no numbers, or rows that differ in length
            raise ValueError(f"slots: expected integers of shape (N, 2), got {shown(slots)}") from None
        index = index.to(self.keys.device)
        index = index if index.numel() else index.new_empty(0, 2, dtype=torch.long)
        if index.dtype not in (torch.int64, torch.int32) or index.dim() != 2 or index.shape[1] != 2:
            raise ValueError(f"slots: expected integers of shape (N, 2), got {kind(index)}")
        for name, new, store in (("k", k, self.keys), ("v", v, self.values)):
            shape = (len(index), store.shape[1], store.shape[3])
            if not isinstance(new, Tensor) or new.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, one row a slot, got {kind(new)}")
            if new.dtype != store.dtype or new.device != store.device:
                place = f"the pool's {store.dtype} on {store.device}"
                raise ValueError(f"{name}: expected {place}, got {new.dtype} on {new.device}")
            _check_no_gradient(name, new)
        blocks, offsets = index.unbind(1)
        if index.device.type == "cpu":
            _check_range("slots", "blocks", blocks, len(self.keys))
            _check_range("slots", "offsets", offsets, self.keys.shape[2])
        self.keys[blocks, :, offsets] = k
        self.values[blocks, :, offsets] = v

    def __repr__(self) -> str:
        blocks, heads, block_size, size = self.keys.shape
        return f"BlockPool({blocks} blocks of {block_size} tokens, {heads} key-value heads of {size})"


def as_tensors(
    tables: BlockTables, sequences: Sequence[int], *, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """The batch of these sequences as ``paged_attention`` takes it: ``table (B, M)`` and ``lengths (B,)``.

    M is the number of blocks of the longest; the ends of shorter rows hold −1. ``lengths`` stay on the CPU, so that
    reading them never waits for a GPU.

    Raises:
        ValueError: a sequence is not there.
    """
    rows = [tables.table(sequence) for sequence in sequences]
    width = max(map(len, rows), default=0)
    table = torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.long, device=device)
    return table.view(len(rows), width), torch.tensor([tables.length(s) for s in sequences], dtype=torch.long)


def paged_attention(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor, *, scale: float | None = None
) -> Tensor:
    """Causal softmax attention of each row's last tokens to all of the row's tokens, found through its block table.

    Shapes: ``q (B, H, T, D)``, the queries of each row's last T tokens; ``keys (N, G, block_size, D)`` and ``values
    (N, G, block_size, Dv)``, a pool's; ``table (B, M)``, integers: the row's blocks in the order of its tokens;
    ``lengths (B,)``, integers: each row's tokens, those of ``q`` included. Returns ``out (B, H, T, Dv)``.

    Query i of T sees its row's first ``lengths[b] − T + i + 1`` tokens; one that sees none gets zeros. So a row with
    fewer than T new tokens is padded in front, and what comes out there has no meaning. Only the first
    ``ceil(lengths[b] / block_size)`` entries of a row of the table are used, and no slot past the row's length: the
    others may hold anything. For inference: no gradient is passed back.

    The cache is never gathered as a whole: keys, then values, come in tiles of at most 2 MiB in float32 (one block a
    row where that is more), and so do the scores. Half precision is widened tile by tile.

    Raises:
        ValueError: a shape, dtype or device does not fit, a length or used block is out of range (blocks are checked
            on the CPU only: a GPU would have to be waited for), or a tensor requires a gradient.

    Source: Kwon et al. 2023, section 4.1 (attention by blocks); Milakov and Gimelshein 2018 (the sum over tiles).
    """
    table = _check(q, keys, values, table, lengths, scale)
    (*_, tokens, size), counts = q.shape, lengths.tolist()
    scale = 1.0 / math.sqrt(size) if scale is None else scale
    out = q.new_zeros(*q.shape[:3], values.shape[3])
    with torch.autocast(q.device.type, enabled=False):  # it would take the products back to half precision
        for begin in range(0, tokens, _QUERY_TILE):
            end = min(begin + _QUERY_TILE, tokens)
            seen = [count - (tokens - end) for count in counts]  # up to this tile's last query
            _walk(q[:, :, begin:end], keys, values, table, seen, scale, out[:, :, begin:end])
    return out


def _walk(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, counts: list[int], scale: float, out: Tensor) -> None:
    """Fill ``out``, tile by tile. The longest rows come first, so that those that still go on are the first ones."""
    (batch, heads, tokens, size), (_, groups, block, value_size) = q.shape, values.shape
    order = sorted(range(batch), key=counts.__getitem__, reverse=True)
    counts = [counts[row] for row in order]
    rows, ends = (torch.tensor(numbers, dtype=torch.long, device=q.device) for numbers in (order, counts))
    wide = torch.promote_types(q.dtype, torch.float32)
    # The query heads that read one key head become further queries of that head: each key is read once.
    queries = q[rows].to(wide).mul_(scale).reshape(batch, groups, heads // groups * tokens, size)
    online = OnlineSoftmax(tuple(queries.shape[:3]), value_size, dtype=wide, device=q.device)
    per_token = max(groups * size, groups * value_size, heads * tokens)
    table, head = table[rows, : -(-max(counts, default=0) // block)], torch.arange(groups, device=q.device)[:, None]
    flat_keys, flat_values = (store.flatten(0, 1).flatten(1) for store in (keys, values))  # views
    buffer = keys.new_empty(max(_TILE, batch * groups * block * max(size, value_size)))  # each tile lies here
    active, start = batch, 0
    while True:
        still = sum(count > start for count in counts)
        if still < active:  # these rows have seen all their keys
            found = online.out()[still:active].view(active - still, heads, tokens, value_size)
            out[rows[still:active]] = found.to(out.dtype)
            online.maximum, online.total = online.maximum[:still], online.total[:still]
            online.weighted, active = online.weighted[:still], still
        if active == 0:
            return
        first, width = start // block, max(1, _TILE // (active * per_token * block))
        blocks = table[:active, None, first : first + width]
        index = torch.add(head, blocks, alpha=groups).flatten()  # one row a head of a block: (active, G, width)
        end = start + blocks.shape[2] * block
        tile = _gather(flat_keys, index, buffer, wide).view(active, groups, end - start, size)
        scores = queries[:active] @ tile.transpose(2, 3)
        tile = _gather(flat_values, index, buffer, wide).view(active, groups, end - start, value_size)
        whole = sum(count - tokens + 1 >= end for count in counts[:active])  # rows whose every query sees all the tile
        if whole < active:
            last = ends[whole:active, None, None] + torch.arange(-tokens, 0, device=q.device)[:, None]
            hidden = torch.arange(start, end, device=q.device) > last  # (rows, T, slots)
            scores[whole:].unflatten(2, (-1, tokens)).masked_fill_(hidden[:, None, None], -math.inf)
            for row in range(whole, active):  # a weight of 0 does not silence NaN in a slot never written
                tile[row, :, counts[row] - start :].zero_()
        online.add(scores, tile)
        start = end


def _gather(store: Tensor, index: Tensor, buffer: Tensor, dtype: torch.dtype) -> Tensor:
    shape = (len(index), store.shape[1])
    return torch.index_select(store, 0, index, out=buffer[: math.prod(shape)].view(shape)).to(dtype)


def _check(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor, scale: float | None) -> Tensor:
    """Check the arguments; return the table with 0, a block that is always there, wherever it is not to be used."""
    for name, tensor in (("q", q), ("keys", keys), ("values", values)):
        if not isinstance(tensor, Tensor) or not tensor.dtype.is_floating_point or tensor.dim() != 4:
            raise ValueError(f"{name}: expected a floating tensor with 4 axes, got {kind(tensor)}")
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise ValueError(f"{name}: expected q's {q.dtype} on {q.device}, got {tensor.dtype} on {tensor.device}")
        _check_no_gradient(name, tensor)
    (batch, heads, _, size), (num_blocks, groups, block_size, _) = q.shape, keys.shape
    if size == 0 or keys.shape[3] != size or groups == 0 or heads % groups or not num_blocks * block_size:
        wanted = f"a pool's shape (N, G, block_size, {max(size, 1)}), G dividing q's {heads} heads"
        raise ValueError(f"keys: expected {wanted}, got {tuple(keys.shape)}")
    if values.shape[:3] != keys.shape[:3]:
        raise ValueError(f"values: expected shape {(*keys.shape[:3], 'Dv')}, as keys, got {tuple(values.shape)}")
    for name, store in (("keys", keys), ("values", values)):
        if not store.is_contiguous():  # seen as one row a block and head, it would be copied whole
            raise ValueError(f"{name}: expected a contiguous tensor, got strides {store.stride()}")
    for name, tensor, shape in (("table", table, "(B, M)"), ("lengths", lengths, "(B,)")):
        fits = isinstance(tensor, Tensor) and tensor.dtype in (torch.int64, torch.int32)
        if not fits or tensor.dim() != len(shape.strip("(,)").split(",")) or len(tensor) != batch:
            raise ValueError(f"{name}: expected integers of shape {shape} with B = {batch}, got {kind(tensor)}")
    if table.device != q.device:
        raise ValueError(f"table: expected q's device {q.device}, got {table.device}")
    _check_range("lengths", "lengths", lengths, table.shape[1] * block_size + 1)
    check_scale(scale)
    starts = torch.arange(0, table.shape[1] * block_size, block_size, device=q.device)
    table = table.masked_fill(starts >= lengths.to(q.device)[:, None], 0)
    if table.device.type == "cpu":
        _check_range("table", "blocks", table, num_blocks)
    return table


def _check_range(name: str, what: str, numbers: Tensor, end: int) -> None:
    if numbers.numel():
        low, high = (int(x) for x in torch.aminmax(numbers))
        if low < 0 or high >= end:
            raise ValueError(f"{name}: expected {what} from 0 to {end - 1}, got {low if low < 0 else high}")


def _check_no_gradient(name: str, tensor: Tensor) -> None:
    if tensor.requires_grad:
        raise ValueError(f"{name}: expected no gradient, since a cache passes none back: use torch.no_grad()")
