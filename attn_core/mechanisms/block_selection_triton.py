# mypy: disable-error-code="no-untyped-def"
"""Block selection on NVIDIA GPUs: attention to the blocks that were chosen, in two kernels of our own.

Query heads that share a key head choose together, so a program owns these heads of one query, up to 16 of them, and
walks over the blocks that they chose, reading keys where they lie. In the backward pass many programs add to the
gradient of the same key, atomically, in float32 and in any order, so its last bits may differ from run to run.

To the kernels all tensors are matrices of rows: of query heads ``(B, T, H, ·)``, of keys ``(B, G, S, ·)``. ``given``
is ``(k, v, blocks, last, mask, sizes, scale)``, with the scale times log2(e), and ``SHAPE`` the head sizes of q and v,
each with the power of two that holds it, then the keys of a tile. Needs the package ``triton``, or its interpreter, as
``mechanisms/flash_triton.py``.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_core.contract import Call
from attn_core.derivatives import first_order
from attn_core.mechanisms.flash_triton_kernels import INTERPRETED, LOG2_E, pointers_to, program, read, write

ROWS = tl.constexpr(16)
"""Query heads of a program: a product of tiles has no fewer rows."""


@triton.jit
def _own(sizes):
    """This program's first row of query heads, and where those of its key head end; batch row, key head, choice."""
    groups, heads, queries, _, chosen, _, _ = sizes
    query, index, batch = program(queries, groups * tl.cdiv(heads, ROWS))
    group = index % groups
    start = ((batch * queries + query) * groups + group) * heads
    head = batch * groups + group
    return start + index // groups * ROWS, start + heads, batch, head, (head * queries + query) * chosen


@triton.jit
def _tile(q_tile, step, batch, head, choice, given, SHAPE: tl.constexpr):
    """The keys and values of a step, where in memory they begin and end, and their scores (base 2, −inf if hidden)."""
    BLOCK_S: tl.constexpr = SHAPE[4]
    k, v, blocks, last, mask, sizes, scale = given
    _, _, _, keys, _, parts, block_size = sizes
    begin = tl.load(blocks + choice + step // parts) * block_size
    start = begin + step % parts * BLOCK_S
    stop = tl.minimum(begin + block_size, tl.load(last + choice + step // parts) + 1)
    first, end = head * keys + start, head * keys + stop
    k_tile = read(k, first, end, SHAPE[0], BLOCK_S, SHAPE[0], SHAPE[1])
    v_tile = read(v, first, end, SHAPE[2], BLOCK_S, SHAPE[2], SHAPE[3])
    key = start + tl.arange(0, BLOCK_S)
    seen = key < stop
    if mask is not None:
        seen = seen & tl.load(mask + batch * keys + key, mask=seen, other=0)
    scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
    return k_tile, v_tile, first, end, tl.where(seen[None, :], scores, float("-inf"))


@triton.jit
def _forward(q, out, logsumexp, given, SHAPE: tl.constexpr):
    """Some heads of one query: the outputs, and the logarithms of sums, +inf where the query sees nothing."""
    D: tl.constexpr = SHAPE[0]
    DV: tl.constexpr = SHAPE[2]
    WIDTH_V: tl.constexpr = SHAPE[3]
    first, end, batch, head, choice = _own(given[5])
    rows = first + tl.arange(0, ROWS)
    q_tile = read(q, first, end, D, ROWS, D, SHAPE[1])
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, WIDTH_V], tl.float32)
    for step in range(given[5][4] * given[5][5]):
        _, v_tile, _, _, scores = _tile(q_tile, step, batch, head, choice, given, SHAPE)
        higher = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # −inf − (−inf) would be NaN
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(highest - base)
        total = total * shrink + tl.sum(weights, 1)
        weighted = tl.dot(weights.to(v_tile.dtype), v_tile, weighted * shrink[:, None], input_precision="ieee")
        highest = higher
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    write(out, tl.where(empty[:, None], 0.0, weighted / total[:, None]), first, end, DV, ROWS, DV, WIDTH_V)
    tl.store(logsumexp + rows, tl.where(empty, float("inf"), highest + tl.log2(total)), mask=rows < end)


@triton.jit
def _add(matrix, tile, first, end, ROWS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    pointers, rows, columns = pointers_to(matrix, first, SIZE, ROWS, WIDTH)
    tl.atomic_add(pointers, tile, mask=(rows < end - first) & (columns < SIZE), sem="relaxed")


@triton.jit
def _backward(q, out, logsumexp, grad, dq, dk, dv, given, SHAPE: tl.constexpr):
    """The same heads and query: writes the gradient of q, and adds to those of the chosen keys and values."""
    D: tl.constexpr = SHAPE[0]
    WIDTH: tl.constexpr = SHAPE[1]
    DV: tl.constexpr = SHAPE[2]
    WIDTH_V: tl.constexpr = SHAPE[3]
    first, end, batch, head, choice = _own(given[5])
    rows = first + tl.arange(0, ROWS)
    q_tile, grad_tile = read(q, first, end, D, ROWS, D, WIDTH), read(grad, first, end, DV, ROWS, DV, WIDTH_V)
    sums = tl.sum(grad_tile.to(tl.float32) * read(out, first, end, DV, ROWS, DV, WIDTH_V), 1)
    level = tl.load(logsumexp + rows, mask=rows < end, other=float("inf"))  # where it is +inf, all weights are 0
    gathered = tl.zeros([ROWS, WIDTH], tl.float32)
    scale = given[6] / LOG2_E
    for step in range(given[5][4] * given[5][5]):
        k_tile, v_tile, start, stop, scores = _tile(q_tile, step, batch, head, choice, given, SHAPE)
        weights = tl.exp2(scores - level[:, None])
        slopes = weights * (tl.dot(grad_tile, tl.trans(v_tile), input_precision="ieee") - sums[:, None])
        slopes = slopes.to(k_tile.dtype)
        gathered = tl.dot(slopes, k_tile, gathered, input_precision="ieee")
        k_part = tl.dot(tl.trans(slopes), q_tile, input_precision="ieee") * scale
        v_part = tl.dot(tl.trans(weights.to(grad_tile.dtype)), grad_tile, input_precision="ieee")
        _add(dk, k_part, start, stop, SHAPE[4], D, WIDTH)
        _add(dv, v_part, start, stop, SHAPE[4], DV, WIDTH_V)
    write(dq, gathered * scale, first, end, D, ROWS, D, WIDTH)


@torch.library.custom_op("attn_core::block_selection", mutates_args=["written"])
def _launch(
    by_query: list[Tensor], written: list[Tensor], given: list[Tensor], mask: Tensor | None, block: int, scale: float
) -> None:
    """One kernel, as an operator of PyTorch: forward, ``by_query`` is q alone; ``given`` are k, v, blocks and last."""
    (batch, queries, heads, size), (_, groups, keys, value_size) = by_query[0].shape, given[1].shape
    width, width_v = (max(16, triton.next_power_of_2(n)) for n in (size, value_size))
    # Keys and values of a tile, twice for the pipeline, fit the 100 KB of shared memory that small GPUs have.
    most = 16 if INTERPRETED else min(64, 16384 // (max(width, width_v) * by_query[0].element_size()))
    step = max(16, min(most, triton.next_power_of_2(block)))
    sizes = groups, heads // groups, queries, keys, given[2].shape[3], triton.cdiv(block, step), block
    arguments = (*given, mask, sizes, scale * LOG2_E.value), (size, width, value_size, width_v, step)
    programs = batch * queries * groups * triton.cdiv(heads // groups, ROWS.value)
    kernel = _forward if len(by_query) == 1 else _backward
    with torch.cuda.device_of(by_query[0]):
        kernel[(programs,)](*by_query, *written, *arguments, num_stages=2)


@dataclass(frozen=True)
class _Attend:
    """Queries and outputs ``(B, T, H, ·)``; all tensors contiguous."""

    q: Tensor
    k: Tensor
    v: Tensor
    blocks: Tensor
    last: Tensor
    mask: Tensor | None
    block_size: int
    scale: float

    def forward(self) -> tuple[Tensor, Tensor]:
        out = self.q.new_empty(*self.q.shape[:3], self.v.shape[3])
        logsumexp = self.q.new_empty(self.q.shape[:3], dtype=torch.float32)
        self.launch([self.q], [out, logsumexp])
        return out, logsumexp

    def backward(self, out: Tensor, logsumexp: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dk, dv = (torch.zeros_like(x, dtype=torch.float32) for x in (self.k, self.v))
        dq = torch.empty_like(self.q)
        self.launch([self.q, out, logsumexp, grad.contiguous()], [dq, dk, dv])
        return dq, dk.to(self.k.dtype), dv.to(self.v.dtype)

    def launch(self, by_query: list[Tensor], written: list[Tensor]) -> None:
        given = [self.k, self.v, self.blocks, self.last]
        _launch(by_query, written, given, self.mask, self.block_size, self.scale)


def attend_to_blocks(call: Call, blocks: Tensor, last: Tensor, block_size: int) -> Tensor:
    """Exact attention to what ``BlockSelection.choose`` returned for the call: ``(B, H, T, Dv)``.

    Shapes: ``blocks`` and ``last (B, G, T, n)``. Sums are kept in float32. There is no second derivative.
    """
    mask = None if call.mask is None else call.mask.expand(len(call.q), 1, 1, call.k.shape[2]).contiguous()
    given = (x.contiguous() for x in (call.q.transpose(1, 2), call.k, call.v, blocks, last))
    return first_order("BlockSelection", _Attend, *given, mask, block_size, call.scale).transpose(1, 2)
