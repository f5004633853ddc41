"""Attention that reads keys and values in blocks, through a block table.

Which block holds which token is decided in ``block_tables``; the blocks themselves are in ``pools``.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from attn_core import masks
from attn_core.cache.block_tables import StreamingWindow
from attn_core.cache.protocol import check_like
from attn_core.contract import accum_dtype, check_integers, check_lengths, check_scale, kind, without_autocast
from attn_core.device import in_tiles
from attn_core.mechanisms.dense import attention
from attn_core.mechanisms.online import OnlineSoftmax

_TILE = 2**19  # numbers in a tile of keys, values or scores at most: 2 MiB in float32, which stay in a core's cache
_QUERY_TILE = 128  # queries of a row at most that read the cache together, which bounds what is kept for them


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    window: StreamingWindow | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Causal softmax attention of each row's last tokens to all of the row's tokens, read through its block table.

    Shapes: ``q (B, H, T, D)``, the queries of each row's last T tokens; ``keys (N, G, block_size, D)`` and ``values
    (N, G, block_size, Dv)``, a pool's; ``table (B, M)``, integers: the row's blocks in the order of its tokens;
    ``lengths (B,)``, integers: each row's tokens, those of ``q`` included. Returns ``out (B, H, T, Dv)``.

    Query i of T sees its row's first ``lengths[b] − T + i + 1`` tokens; one that sees none gets zeros. So a row with
    fewer than T new tokens is padded in front, and what comes out there has no meaning. Only the first
    ``ceil(lengths[b] / block_size)`` entries of a row of the table are used, and no slot past the row's length: the
    others may hold anything. No gradient is passed back.

    With a ``window`` each query sees only the first and the last of these tokens. Blocks that it hides from all queries
    (``StreamingWindow.unseen`` of the tokens before them) may be left out of a row's table, and of its length. A ``mask
    (B, T, M · block_size)`` hides more of what lies in a row's blocks from each of its queries, where it is False.

    On a CPU keys, values and scores come in tiles (``tiled_attention``), or, for one query a row where all rows fit
    into a tile, by PyTorch's fused kernel (``one_tile``). On CUDA, few queries without a mask read the blocks where
    they lie (``paged_triton.split_attention``). Elsewhere all rows are gathered (``gathered_attention``).

    Source: Kwon et al. 2023, section 4.1 (attention by blocks); Milakov and Gimelshein 2018 (the sum over tiles).
    """
    scale = checked(q, keys, values, table, lengths, mask, scale)
    with torch.no_grad(), without_autocast(q):  # autocast would take the products back to half precision
        if in_tiles(q.device):
            counts = lengths.tolist() if q.shape[2] == 1 and mask is None and window is None else [0]
            if all(counts) and 0 < len(counts) <= rows_in_tile(max(counts), keys):
                return one_tile(q, keys, values, *tile(table, lengths, keys.shape[2]), scale=scale)
            out, _ = tiled_attention(q, keys, values, table, lengths, scale=scale, window=window, mask=mask)
            return out.to(q.dtype)
        if q.device.type == "cuda" and mask is None:
            from attn_core.cache.paged_triton import split_attention, suits  # triton may be absent

            if suits(q, keys, values):
                return split_attention(q, keys, values, table, lengths, scale=scale, window=window)
        return gathered_attention(q, keys, values, table, lengths, scale=scale, window=window, mask=mask)


def checked(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor, mask: Tensor | None, scale: float | None
) -> float:
    """Check the arguments of ``paged_attention``; the scale, by default 1 / √D."""
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
    slots = batch, q.shape[2], table.shape[1] * block_size
    if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != slots):
        raise ValueError(f"mask: expected a boolean tensor of shape {slots}, got {kind(mask)}")
    check_scale(scale)
    return 1.0 / math.sqrt(size) if scale is None else scale


def rows_in_tile(tokens: int, keys: Tensor) -> int:
    """How many rows of at most so many tokens, at least one, fit into one tile of these ``keys``."""
    return _TILE // (tokens * keys[0, :, 0].numel())


def tile(table: Tensor, lengths: Tensor, block_size: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Where the tokens of rows lie: their blocks and offsets ``(B, S)``; and which are true, None if all are.

    Past a row's end its last token stands once more, since an unused slot may hold NaN.
    """
    slots = torch.arange(int(lengths.max()), device=table.device)
    slot, true = slots.clamp(max=lengths[:, None] - 1), slots < lengths[:, None]
    return table.gather(1, slot // block_size), slot % block_size, None if bool(true.all()) else true[:, None, None]


def one_tile(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    blocks: Tensor,
    offsets: Tensor,
    true: Tensor | None,
    *,
    scale: float | None = None,
) -> Tensor:
    """``paged_attention`` of one query a row to all tokens of a ``tile``: PyTorch's fused kernel reads a copy."""
    groups, block_size = keys.shape[1:3]
    head = torch.arange(groups, device=q.device)[:, None]
    index = ((blocks[:, None] * groups + head) * block_size + offsets[:, None]).flatten()
    stores = (x.reshape(-1, x.shape[3]) for x in (keys, values))  # a view of a pool
    k, v = (x.index_select(0, index).view(len(q), groups, -1, x.shape[1]) for x in stores)
    queries = q.reshape(len(q), groups, -1, q.shape[3])  # the heads that share keys, as queries of one head
    return functional.scaled_dot_product_attention(queries, k, v, true, scale=scale).flatten(1, 2)[:, :, None]


def gathered_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    window: StreamingWindow | None = None,
    mask: Tensor | None = None,
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
    visible = seen(slots, ends, window, None if mask is None else mask[:, :, : len(slots)])
    return attention(q, k, v, mask=visible[:, None], scale=scale)


def seen(slots: Tensor, ends: Tensor, window: StreamingWindow | None, mask: Tensor | None = None) -> Tensor:
    """Which of ``slots (S,)`` a query sees that comes just before the slot ``ends (…)``: ``(…, S)``, as the mask."""
    ends = ends[..., None]
    found = slots < ends if mask is None else (slots < ends) & mask
    return found if window is None else found & ((slots < window.sinks) | (slots >= ends - window.size))


def tiled_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    *,
    scale: float,
    window: StreamingWindow | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``paged_attention`` in tiles of at most 2 MiB in float32, or one block, so that nothing is gathered whole.

    Returns the output before it is rounded, and the log-sum-exp ``(B, H, T)`` of the scores that each query sees.
    """
    (_, heads, tokens, size), (_, groups, block_size, value_size) = q.shape, values.shape
    per_token, dtype = groups * max(size, value_size), accum_dtype(q)
    table = table.where(masks.length_mask(-(-lengths.to(q.device) // block_size), table.shape[1]), 0)
    head = torch.arange(groups, device=q.device)[:, None]
    out = q.new_zeros(*q.shape[:3], value_size, dtype=dtype)
    logsumexp = q.new_full(q.shape[:3], -math.inf, dtype=dtype)
    buffer = keys.new_empty(max(_TILE, per_token * block_size))  # each tile of keys or values lies here

    def read(store: Tensor, blocks: Tensor) -> Tensor:
        rows, index = store.view(len(store) * groups, -1), (blocks[:, None] * groups + head).flatten()
        tile = buffer[: len(index) * rows.shape[1]].view(len(index), rows.shape[1])
        torch.index_select(rows, 0, index, out=tile)
        return tile.view(len(blocks), groups, blocks.shape[1] * block_size, -1).to(dtype)

    def attend(q: Tensor, table: Tensor, lengths: list[int], mask: Tensor | None, width: int) -> OnlineSoftmax:
        """What some rows get, ``width`` blocks of each at a time."""
        batch, _, tokens, _ = q.shape
        # The query heads that read one key head become further queries of that head, so that each key is read once.
        queries = (q.to(dtype) * scale).reshape(batch, groups, heads // groups * tokens, size)
        online = OnlineSoftmax(tuple(queries.shape[:3]), value_size, dtype=dtype, device=q.device)
        ends = torch.tensor(lengths, device=q.device)[:, None] + torch.arange(1 - tokens, 1, device=q.device)  # (B, T)
        table = table[:, : -(-max(lengths) // block_size)]
        for first, blocks in zip(range(0, table.shape[1], width), table.split(width, dim=1), strict=True):
            start, stop = first * block_size, (first + blocks.shape[1]) * block_size
            scores = queries @ read(keys, blocks).mT
            tile = read(values, blocks)
            late, early = stop > min(lengths) - tokens + 1, window is not None and start < max(lengths) - window.size
            if late or early or mask is not None:  # some query does not see all of the tile
                shown = None if mask is None else mask[:, :, start:stop]
                hidden = ~seen(torch.arange(start, stop, device=q.device), ends, window, shown)
                scores.unflatten(2, (-1, tokens)).masked_fill_(hidden[:, None, None], -math.inf)
            for row, length in enumerate(lengths if late else []):  # 0 does not silence NaN in an unused slot
                tile[row, :, max(length - start, 0) :].zero_()
            online.add(scores, tile)
        return online

    for begin in range(0, tokens, _QUERY_TILE):
        end = min(begin + _QUERY_TILE, tokens)
        counts = [length - (tokens - end) for length in lengths.tolist()]  # of keys, to this tile's last query
        left = sorted((row for row, count in enumerate(counts) if count > 0), key=counts.__getitem__, reverse=True)
        per_key = max(per_token, heads * (end - begin))
        while left:  # long rows are read one by one, and of shorter ones as many together as fill a tile
            several = max(1, _TILE // (per_key * counts[left[0]]))
            rows, left = left[:several], left[several:]
            width = max(1, _TILE // (per_key * block_size * len(rows)))
            shown = None if mask is None else mask[rows, begin:end]
            online = attend(q[rows, :, begin:end], table[rows], [counts[row] for row in rows], shown, width)
            out[rows, :, begin:end] = online.out().view(len(rows), heads, end - begin, value_size)
            logsumexp[rows, :, begin:end] = online.logsumexp().view(len(rows), heads, end - begin)
    return out, logsumexp
