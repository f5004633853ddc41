"""Paged attention on a CPU: keys and values come in tiles that stay in a core's cache, so nothing is gathered whole."""

import math

import torch
from torch import Tensor

from attn_core import masks
from attn_core.cache.block_tables import StreamingWindow
from attn_core.contract import accum_dtype, without_autocast
from attn_core.mechanisms.online import OnlineSoftmax

_TILE = 2**19
"""Numbers in a tile of keys, values or scores at most: 2 MiB in float32, which stay in a core's cache."""

_QUERY_TILE = 128
"""Queries of a row at most that read the cache together, which bounds what is kept for them."""


def seen(slots: Tensor, ends: Tensor, window: StreamingWindow | None) -> Tensor:
    """Which of ``slots (S,)`` a query sees that comes just before the slot ``ends (…)``: ``(…, S)``."""
    ends = ends[..., None]
    found = slots < ends
    return found if window is None else found & ((slots < window.sinks) | (slots >= ends - window.size))


def tiled_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    scale: float,
    window: StreamingWindow | None,
) -> Tensor:
    """``paged_attention``, its arguments checked already."""
    # The entries that are not used name block 0, which always exists.
    table = table.where(masks.length_mask(-(-lengths.to(q.device) // keys.shape[2]), table.shape[1]), 0)
    tokens, per_token = q.shape[2], keys.shape[1] * max(keys.shape[3], values.shape[3])
    out = q.new_zeros(*q.shape[:3], values.shape[3])
    buffer = keys.new_empty(max(_TILE, per_token * keys.shape[2]))  # each tile of keys or values lies here
    with without_autocast(q):  # it would take the products back to half precision
        for begin in range(0, tokens, _QUERY_TILE):
            end = min(begin + _QUERY_TILE, tokens)
            counts = [length - (tokens - end) for length in lengths.tolist()]  # of keys, to this tile's last query
            left = sorted((row for row, count in enumerate(counts) if count > 0), key=counts.__getitem__, reverse=True)
            per_key = max(per_token, q.shape[1] * (end - begin))
            while left:  # long rows are read one by one, and of shorter ones as many together as fill a tile
                several = max(1, _TILE // (per_key * counts[left[0]]))
                rows, left = left[:several], left[several:]
                width = max(1, _TILE // (per_key * keys.shape[2] * len(rows)))
                lengths_seen = [counts[row] for row in rows]
                out[rows, :, begin:end] = _attend(
                    q[rows, :, begin:end], keys, values, table[rows], lengths_seen, scale, width, buffer, window
                )
    return out


def _attend(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: list[int],
    scale: float,
    width: int,
    buffer: Tensor,
    window: StreamingWindow | None,
) -> Tensor:
    """``tiled_attention`` of some rows, ``width`` blocks of each at a time."""
    (batch, heads, tokens, size), (_, groups, block_size, value_size) = q.shape, values.shape
    dtype = accum_dtype(q)
    # The query heads that read one key head become further queries of that head, so that each key is read once.
    queries = (q.to(dtype) * scale).reshape(batch, groups, heads // groups * tokens, size)
    online = OnlineSoftmax(tuple(queries.shape[:3]), value_size, dtype=dtype, device=q.device)
    ends = torch.tensor(lengths, device=q.device)[:, None] + torch.arange(1 - tokens, 1, device=q.device)  # (B, T)
    head = torch.arange(groups, device=q.device)[:, None]
    table = table[:, : -(-max(lengths) // block_size)]
    for first, blocks in zip(range(0, table.shape[1], width), table.split(width, dim=1), strict=True):
        index = (blocks[:, None] * groups + head).flatten()  # of a pool seen as one row a block and head
        start, stop = first * block_size, (first + blocks.shape[1]) * block_size
        scores = queries @ _read(keys, index, buffer).view(batch, groups, stop - start, size).to(dtype).mT
        tile = _read(values, index, buffer).view(batch, groups, stop - start, value_size).to(dtype)
        late, early = stop > min(lengths) - tokens + 1, window is not None and start < max(lengths) - window.size
        if late or early:  # some query does not see all of the tile
            hidden = ~seen(torch.arange(start, stop, device=q.device), ends, window)
            scores.unflatten(2, (-1, tokens)).masked_fill_(hidden[:, None, None], -math.inf)
        for row, length in enumerate(lengths if late else []):  # a weight of 0 does not silence NaN in an unused slot
            tile[row, :, max(length - start, 0) :].zero_()
        online.add(scores, tile)
    return online.out().view(batch, heads, tokens, value_size).to(q.dtype)


def _read(store: Tensor, index: Tensor, buffer: Tensor) -> Tensor:
    rows = store.view(store.shape[0] * store.shape[1], -1)
    out = buffer[: len(index) * rows.shape[1]].view(len(index), rows.shape[1])
    return torch.index_select(rows, 0, index, out=out)
