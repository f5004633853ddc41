"""Attention of few queries to a long cache on NVIDIA GPUs: split-K decoding, in two kernels of our own.

In a decoding step each row has one query, and one program for each row and key head would leave most of a GPU idle. So
the keys of a row are split: each program reads one part and writes what the queries get from it alone, with the
log-sum-exp of their scores, and a second kernel combines the parts as flash attention combines tiles.

Needs the package ``triton``, or its interpreter, as ``mechanisms/flash_triton.py``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_core.cache.block_tables import StreamingWindow
from attn_core.mechanisms.flash_triton import LARGEST_HEAD
from attn_core.mechanisms.flash_triton_kernels import INTERPRETED, LOG2_E
from attn_core.mechanisms.tiles import tiles

MOST_ROWS, MOST_PARTS = 64, 64  # query rows of one key head, and parts of a row's keys, at most


@triton.jit
def _read_part(q, keys, values, table, lengths, out, logsumexp, sizes, scale, strides, SHAPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """One part of a row's keys: what the queries of one key head get from it, and their logarithms of sums, base 2.

    Row r is query r % T of one of the heads; query i of T sees the row's first ``length − T + i + 1`` keys, and of
    these the first ``sinks`` and the last ``window``.
    """
    rows_of_q, queries, blocks_in_row, block_size, part_size, window, sinks = sizes
    ROWS: tl.constexpr = SHAPE[0]
    D: tl.constexpr = SHAPE[1]
    WIDTH: tl.constexpr = SHAPE[2]
    DV: tl.constexpr = SHAPE[3]
    WIDTH_V: tl.constexpr = SHAPE[4]
    BLOCK_S: tl.constexpr = SHAPE[5]
    part, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    place = (batch * tl.num_programs(1) + head) * tl.num_programs(0) + part
    rows, columns, columns_v = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, WIDTH_V)
    q += (batch * tl.num_programs(1) + head) * rows_of_q * D
    given = (rows < rows_of_q)[:, None]
    q_tile = tl.load(q + rows[:, None] * D + columns[None, :], mask=given & (columns < D)[None, :], other=0.0)
    length = tl.load(lengths + batch).to(tl.int32)
    last = length - queries + rows % queries  # the last key that each row sees
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, WIDTH_V], tl.float32)
    for start in range(part * part_size, tl.minimum((part + 1) * part_size, length), BLOCK_S):
        tokens = start + tl.arange(0, BLOCK_S)
        there = tokens < length
        block = tl.load(table + batch * blocks_in_row + tokens // block_size, mask=there, other=0).to(tl.int64)
        slot = tokens % block_size
        k_rows = keys + block * strides[0] + head * strides[1] + slot * strides[2]
        k_tile = tl.load(k_rows[:, None] + columns[None, :], mask=there[:, None] & (columns < D)[None, :], other=0.0)
        v_rows = values + block * strides[3] + head * strides[4] + slot * strides[5]
        shown = there[:, None] & (columns_v < DV)[None, :]
        v_tile = tl.load(v_rows[:, None] + columns_v[None, :], mask=shown, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        seen = there[None, :] & (tokens[None, :] <= last[:, None])
        seen = seen & ((tokens[None, :] < sinks) | (tokens[None, :] > last[:, None] - window))
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # −inf − (−inf) would be NaN
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(highest - base)
        total = total * shrink + tl.sum(weights, 1)
        weighted = tl.dot(weights.to(v_tile.dtype), v_tile, weighted * shrink[:, None], input_precision="ieee")
        highest = higher
    empty = total == 0.0
    weighted = tl.where(empty[:, None], 0.0, weighted / tl.where(empty, 1.0, total)[:, None])
    shown = given & (columns_v < DV)[None, :]
    tl.store(out + place * rows_of_q * DV + rows[:, None] * DV + columns_v[None, :], weighted, mask=shown)
    sums = tl.where(empty, float("-inf"), highest + tl.log2(tl.where(empty, 1.0, total)))
    tl.store(logsumexp + place * rows_of_q + rows, sums, mask=rows < rows_of_q)


@triton.jit
def _combine(parts, logsumexp, out, number, DV: tl.constexpr, WIDTH_V: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row: the outputs of all parts, weighed by their shares of the sum of exponentials; zeros if that is 0."""
    row, rows_of_q, place = tl.program_id(0), tl.num_programs(0), tl.program_id(1).to(tl.int64)
    columns = tl.arange(0, WIDTH_V)
    highest, total = float("-inf"), 0.0
    weighted = tl.zeros([WIDTH_V], tl.float32)
    for part in range(number):
        index = (place * number + part) * rows_of_q + row
        sums = tl.load(logsumexp + index)
        higher = tl.maximum(highest, sums)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        share, shrink = tl.exp2(sums - base), tl.exp2(highest - base)
        total = total * shrink + share
        weighted = weighted * shrink + share * tl.load(parts + index * DV + columns, mask=columns < DV, other=0.0)
        highest = higher
    weighted = weighted / tl.where(total == 0.0, 1.0, total)
    out += (place * rows_of_q + row) * DV
    tl.store(out + columns, weighted.to(out.dtype.element_ty), mask=columns < DV)


def suits(q: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether ``split_attention`` has a kernel for these: few queries, at most 256 entries a head, at most 32 bits."""
    rows = q.shape[1] // keys.shape[1] * q.shape[2]
    sizes = max(q.shape[3], values.shape[3]) <= LARGEST_HEAD and min(q.numel(), values.shape[3]) > 0
    return rows <= MOST_ROWS and sizes and q.dtype in (torch.float16, torch.bfloat16, torch.float32)


def split_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    *,
    scale: float,
    window: StreamingWindow | None = None,
    parts: int | None = None,
) -> Tensor:
    """``paged_attention`` of the few queries that ``suits`` accepts, its arguments checked already: ``(B, H, T, Dv)``.

    The keys of each row are read in ``parts`` parts at once, by default as many as fill the GPU.

    Source: Dao et al. 2023 (Flash-Decoding).
    """
    (batch, heads, queries, size), (_, groups, block_size, value_size) = q.shape, values.shape
    rows = heads // groups * queries
    rows_of_tile, width, width_v = (max(16, triton.next_power_of_2(n)) for n in (rows, size, value_size))
    _, step, warps, stages = (16, 16, 4, 1) if INTERPRETED else tiles("read_part", max(width, width_v), q.dtype)[0]
    longest = table.shape[1] * block_size if lengths.device.type != "cpu" else int(lengths.max())
    if parts is None:
        wanted = 2 * torch.cuda.get_device_properties(q.device).multi_processor_count // (batch * groups)
        parts = max(1, min(wanted, triton.cdiv(longest, 4 * step), MOST_PARTS))
    part_size = triton.cdiv(triton.cdiv(longest, parts), step) * step
    keys, values = (x if x.stride(3) == 1 else x.contiguous() for x in (keys, values))
    out = q.new_empty(batch, groups, rows, value_size)
    found = torch.empty(batch, groups, parts, rows, value_size, dtype=torch.float32, device=q.device)
    logsumexp = torch.empty(batch, groups, parts, rows, dtype=torch.float32, device=q.device)
    lengths = lengths.to(q.device, non_blocking=True)
    seen = (longest, 0) if window is None else (window.size, window.sinks)
    with torch.cuda.device_of(q):
        _read_part[parts, groups, batch](
            q.reshape(batch, groups, rows, size).contiguous(),
            keys,
            values,
            table.contiguous(),
            lengths,
            found,
            logsumexp,
            (rows, queries, table.shape[1], block_size, part_size, *seen),
            scale * LOG2_E.value,
            (*keys.stride()[:3], *values.stride()[:3]),
            (rows_of_tile, size, width, value_size, width_v, step),
            num_warps=warps,
            num_stages=stages,
        )
        _combine[rows, batch * groups](found, logsumexp, out, parts, value_size, width_v)
    return out.view(batch, heads, queries, value_size)
