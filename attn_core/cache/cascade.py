"""Attention of rows that begin with the same blocks: what they share is read once for all of them."""

import torch
from torch import Tensor

from attn_core.cache.paged import checked, paged_attention, tiled_attention
from attn_core.contract import can_read, check_integer, without_autocast
from attn_core.mechanisms.dense import attend


def cascade_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    shared: int,
    *,
    scale: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """``paged_attention`` of rows whose tables begin with the same ``shared`` blocks.

    All queries of all rows attend to the shared blocks together, and those of each row to its other blocks. The two
    outputs are then averaged, with the softmax of their log-sum-exps as weights: a part's share of the sum of all
    exponentials. Every query has to see all shared slots, so ``shared`` is at most the number of blocks before the
    first query of the shortest row. No gradient is passed back. It is plain PyTorch, made for a CPU.

    Source: Juravsky et al. 2024, section 3.1; Milakov and Gimelshein 2018 (the sum of two parts).
    """
    scale = checked(q, keys, values, table, lengths, mask, scale)
    (batch, _, tokens, size), (_, groups, block_size, _) = q.shape, keys.shape
    first = min(lengths.tolist(), default=0) - tokens + 1  # how many tokens the first query of the shortest row sees
    check_integer("shared", shared, at_least=0, at_most=max(first, 0) // block_size)
    if can_read(table) and not torch.equal(table[:, :shared], table[:1, :shared].expand(batch, -1)):
        raise ValueError(f"shared: expected blocks with which all rows begin, got {shared} that differ")
    if shared == 0:
        return paged_attention(q, keys, values, table, lengths, scale=scale, mask=mask)
    begin = shared * block_size
    hidden = None if mask is None else mask[:, :, begin:]
    # A query that sees every key may as well be one more head of a single row with a single token.
    together = q.reshape(batch, groups, -1, size).transpose(0, 1).reshape(1, -1, 1, size)
    whole = lengths[:1].clamp(begin, begin)
    with torch.no_grad(), without_autocast(q):
        parts = tiled_attention(together, keys, values, table[:1, :shared], whole, scale=scale, window=None, mask=None)
        by_all = [x[0, :, 0].unflatten(0, (groups, batch, -1, tokens)).transpose(0, 1).flatten(1, 2) for x in parts]
        own = tiled_attention(
            q, keys, values, table[:, shared:], lengths - begin, scale=scale, window=None, mask=hidden
        )
        outs, sums = (torch.stack(both, 3) for both in zip(by_all, own, strict=True))  # (B, H, T, 2, Dv), (B, H, T, 2)
        return attend(sums.unsqueeze(3), outs)[0].squeeze(3).to(q.dtype)
