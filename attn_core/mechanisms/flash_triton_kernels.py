# mypy: disable-error-code="no-untyped-def"
"""The kernels of FlashAttention-2 in Triton, for ``mechanisms/flash_triton.py``: forward, and backward in two.

A program owns one tile of queries or of keys and walks over the tiles of the other side, so every sum has a fixed
order. A second loop goes over the tiles that lie wholly below the diagonal and within the sequence, and checks no
limits. Exponents are to base 2.

``given`` is ``(limits, sizes, scale, strides)``: mask and bias, each with its strides or two None; ``(heads, queries,
keys)``; the scale times log2(e); the strides of the tensors with four axes, in the order of the arguments. ``SHAPE`` is
the number of query heads a key head, ``causal``, and the head sizes of q and v, each with the power of two that holds
it. The entries of a row lie side by side in memory.

Source: Dao et al. 2022, algorithms 1 and 4; Dao 2023, sections 3.1 and 3.2.
"""

import os

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def program(count, heads):
    """This program's tile, head and batch row. Tiles of one head, which read the same, run side by side."""
    index = tl.program_id(0)
    return index % count, (index // count % heads).to(tl.int64), (index // count // heads).to(tl.int64)


@triton.jit
def pointers_to(matrix, first, stride, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Where the entries of the tile of rows from ``first`` on are; its rows, counted from there, and its columns."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    return matrix + tl.cast(first, tl.int64) * stride + (rows * stride + columns), rows, columns


@triton.jit
def read(matrix, first, count, stride, ROWS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """The tile of rows from ``first`` on, out of ``count`` rows, and zeros beyond."""
    pointers, rows, columns = pointers_to(matrix, first, stride, ROWS, WIDTH)
    if SIZE < WIDTH:
        return tl.load(pointers, mask=(rows < count - first) & (columns < SIZE), other=0.0)
    else:
        return tl.load(pointers, mask=rows < count - first, other=0.0)


@triton.jit
def write(matrix, tile, first, count, stride, ROWS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Write such a tile, in the matrix's dtype."""
    pointers, rows, columns = pointers_to(matrix, first, stride, ROWS, WIDTH)
    tl.store(pointers, tile.to(matrix.dtype.element_ty), mask=(rows < count - first) & (columns < SIZE))


@triton.jit
def _limit(scores, rows, columns, limits, sizes, batch, head, CAUSAL: tl.constexpr):
    """Scores with the bias added, and −inf where a query (``rows``) may not see a key (``columns``), or is none."""
    mask, mask_strides, bias, bias_strides = limits
    visible = (rows < sizes[1]) & (columns < sizes[2])
    if CAUSAL:
        visible = visible & (columns <= rows + (sizes[2] - sizes[1]))
    rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    if mask is not None:
        mask += batch * mask_strides[0] + head * mask_strides[1]
        visible = visible & tl.load(mask + (rows * mask_strides[2] + columns * mask_strides[3]), mask=visible, other=0)
    if bias is not None:
        bias += batch * bias_strides[0] + head * bias_strides[1]
        extra = tl.load(bias + (rows * bias_strides[2] + columns * bias_strides[3]), mask=visible, other=0.0)
        scores += extra.to(tl.float32) * LOG2_E
    return tl.where(visible, scores, float("-inf"))


@triton.jit
def _seen(first, sizes, CAUSAL: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    """For a tile of queries: the end of the whole tiles of keys that all of it sees, and the end of what any sees.

    The first end always lies before the second, even if no query sees the tile between them. ``tl.assume`` says so,
    because NVIDIA's assembler overlaps the products of the second loop only if the first one cannot be empty.
    """
    seen, end = sizes[2], sizes[2]
    if CAUSAL:
        seen = first + sizes[2] - sizes[1] + 1  # by the first query
        end = tl.maximum(tl.minimum(end, seen + BLOCK_T - 1), 1)
    full = tl.minimum(tl.maximum(seen, 0), end - 1) // BLOCK_S * BLOCK_S
    tl.assume(full < end)
    return full, end


@triton.jit
def forward(q, k, v, out, logsumexp, given, SHAPE: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    """One tile of queries: its output, and its logarithms of sums, +inf for a query that sees nothing."""
    limits, sizes, scale, strides = given
    heads, queries, keys = sizes
    GROUP: tl.constexpr = SHAPE[0]
    CAUSAL: tl.constexpr = SHAPE[1]
    D: tl.constexpr = SHAPE[2]
    WIDTH: tl.constexpr = SHAPE[3]
    DV: tl.constexpr = SHAPE[4]
    WIDTH_V: tl.constexpr = SHAPE[5]
    q_strides, k_strides, v_strides, out_strides = strides
    count = tl.cdiv(queries, BLOCK_T)
    tile, head, batch = program(count, heads)
    first = (count - 1 - tile) * BLOCK_T  # under the causal mask the last tiles take longest, so they come first
    rows = first + tl.arange(0, BLOCK_T)
    q += batch * q_strides[0] + head * q_strides[1]
    k += batch * k_strides[0] + head // GROUP * k_strides[1]
    v += batch * v_strides[0] + head // GROUP * v_strides[1]
    out += batch * out_strides[0] + head * out_strides[1]
    logsumexp += (batch * heads + head) * queries
    q_tile = read(q, first, queries, q_strides[2], BLOCK_T, D, WIDTH)
    highest = tl.full([BLOCK_T], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_T], tl.float32)
    weighted = tl.zeros([BLOCK_T, WIDTH_V], tl.float32)
    full, end = _seen(first, sizes, CAUSAL, BLOCK_T, BLOCK_S)
    for limited in tl.static_range(1, -1, -1):
        for start in range(full if limited else 0, end if limited else full, BLOCK_S):
            k_tile = read(k, start, keys, k_strides[2], BLOCK_S, D, WIDTH)
            v_tile = read(v, start, keys, v_strides[2], BLOCK_S, DV, WIDTH_V)
            scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee")
            if limited or limits[0] is not None or limits[2] is not None:
                columns = start + tl.arange(0, BLOCK_S)
                scores = _limit(scores * scale, rows[:, None], columns[None, :], limits, sizes, batch, head, CAUSAL)
                higher = tl.maximum(highest, tl.max(scores, 1))
                base = tl.where(higher == float("-inf"), 0.0, higher)  # −inf − (−inf) would be NaN
                weights = tl.exp2(scores - base[:, None])
            else:
                higher = tl.maximum(highest, tl.max(scores, 1) * scale)
                base = higher
                weights = tl.exp2(scores * scale - base[:, None])
            shrink = tl.exp2(highest - base)  # makes the earlier sums relative to the new maximum
            total = total * shrink + tl.sum(weights, 1)
            weighted = tl.dot(weights.to(v_tile.dtype), v_tile, weighted * shrink[:, None], input_precision="ieee")
            highest = higher
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    # Masked, because zero times NaN is NaN: an empty row gives zeros whatever its values are.
    weighted = tl.where(empty[:, None], 0.0, weighted / total[:, None])
    write(out, weighted, first, queries, out_strides[2], BLOCK_T, DV, WIDTH_V)
    tl.store(logsumexp + rows, tl.where(empty, float("inf"), highest + tl.log2(total)), mask=rows < queries)


@triton.jit
def backward_q(
    q, k, v, grad, out, dq, logsumexp, delta, given, SHAPE: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr
):
    """One tile of queries: its gradient; and, for the keys' kernel, ``delta``, the sums over a row of grad · out."""
    limits, sizes, scale, strides = given
    heads, queries, keys = sizes
    GROUP: tl.constexpr = SHAPE[0]
    CAUSAL: tl.constexpr = SHAPE[1]
    D: tl.constexpr = SHAPE[2]
    WIDTH: tl.constexpr = SHAPE[3]
    DV: tl.constexpr = SHAPE[4]
    WIDTH_V: tl.constexpr = SHAPE[5]
    q_strides, k_strides, v_strides, grad_strides, out_strides, dq_strides = strides
    count = tl.cdiv(queries, BLOCK_T)
    tile, head, batch = program(count, heads)
    first = (count - 1 - tile) * BLOCK_T
    rows = first + tl.arange(0, BLOCK_T)
    q += batch * q_strides[0] + head * q_strides[1]
    k += batch * k_strides[0] + head // GROUP * k_strides[1]
    v += batch * v_strides[0] + head // GROUP * v_strides[1]
    grad += batch * grad_strides[0] + head * grad_strides[1]
    dq += batch * dq_strides[0] + head * dq_strides[1]
    out += batch * out_strides[0] + head * out_strides[1]
    logsumexp += (batch * heads + head) * queries
    delta += (batch * heads + head) * queries
    q_tile = read(q, first, queries, q_strides[2], BLOCK_T, D, WIDTH)
    grad_tile = read(grad, first, queries, grad_strides[2], BLOCK_T, DV, WIDTH_V)
    out_tile = read(out, first, queries, out_strides[2], BLOCK_T, DV, WIDTH_V)
    sums = tl.sum(grad_tile.to(tl.float32) * out_tile.to(tl.float32), 1)
    tl.store(delta + rows, sums, mask=rows < queries)
    # Rows that see nothing, and rows beyond the last, have +inf here, so all their weights are exp2(−inf) = 0.
    level = tl.load(logsumexp + rows, mask=rows < queries, other=float("inf"))
    gathered = tl.zeros([BLOCK_T, WIDTH], tl.float32)
    full, end = _seen(first, sizes, CAUSAL, BLOCK_T, BLOCK_S)
    for limited in tl.static_range(1, -1, -1):
        for start in range(full if limited else 0, end if limited else full, BLOCK_S):
            k_tile = read(k, start, keys, k_strides[2], BLOCK_S, D, WIDTH)
            v_tile = read(v, start, keys, v_strides[2], BLOCK_S, DV, WIDTH_V)
            scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
            if limited or limits[0] is not None or limits[2] is not None:
                columns = start + tl.arange(0, BLOCK_S)
                scores = _limit(scores, rows[:, None], columns[None, :], limits, sizes, batch, head, CAUSAL)
            weights = tl.exp2(scores - level[:, None])
            products = tl.dot(grad_tile, tl.trans(v_tile), input_precision="ieee")
            slopes = weights * (products - sums[:, None])
            gathered = tl.dot(slopes.to(k_tile.dtype), k_tile, gathered, input_precision="ieee")
    write(dq, gathered * (scale / LOG2_E), first, queries, dq_strides[2], BLOCK_T, D, WIDTH)


@triton.jit
def backward_kv(
    q, k, v, grad, dk, dv, logsumexp, delta, given, SHAPE: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr
):
    """One tile of keys: the gradients of its keys and values, over all query heads. Scores are keys by queries here."""
    limits, sizes, scale, strides = given
    heads, queries, keys = sizes
    GROUP: tl.constexpr = SHAPE[0]
    CAUSAL: tl.constexpr = SHAPE[1]
    D: tl.constexpr = SHAPE[2]
    WIDTH: tl.constexpr = SHAPE[3]
    DV: tl.constexpr = SHAPE[4]
    WIDTH_V: tl.constexpr = SHAPE[5]
    q_strides, k_strides, v_strides, grad_strides, dk_strides, dv_strides = strides
    tile, key_head, batch = program(tl.cdiv(keys, BLOCK_S), heads // GROUP)
    first = tile * BLOCK_S
    columns = first + tl.arange(0, BLOCK_S)
    k += batch * k_strides[0] + key_head * k_strides[1]
    v += batch * v_strides[0] + key_head * v_strides[1]
    dk += batch * dk_strides[0] + key_head * dk_strides[1]
    dv += batch * dv_strides[0] + key_head * dv_strides[1]
    k_tile = read(k, first, keys, k_strides[2], BLOCK_S, D, WIDTH)
    v_tile = read(v, first, keys, v_strides[2], BLOCK_S, DV, WIDTH_V)
    k_sum = tl.zeros([BLOCK_S, WIDTH], tl.float32)
    v_sum = tl.zeros([BLOCK_S, WIDTH_V], tl.float32)
    # Under the causal mask, tiles of queries from `begin` on see some of these keys, those from `full` on see all.
    begin, full = 0, 0
    if CAUSAL:
        seer = first + queries - keys  # the first query that sees the first of these keys
        begin = tl.maximum(seer, 0) // BLOCK_T * BLOCK_T
        full = begin + tl.maximum(tl.cdiv(seer + BLOCK_S - 1 - begin, BLOCK_T), 1) * BLOCK_T
    middle = tl.minimum(full, queries)
    tl.assume(begin < queries)
    for member in range(GROUP):
        head = key_head * GROUP + member
        q_head = q + batch * q_strides[0] + head * q_strides[1]
        grad_head = grad + batch * grad_strides[0] + head * grad_strides[1]
        place = (batch * heads + head) * queries
        for limited in tl.static_range(1 if CAUSAL else 0, -1, -1):
            for start in range(begin if limited else full, middle if limited else queries, BLOCK_T):
                rows = start + tl.arange(0, BLOCK_T)
                q_tile = read(q_head, start, queries, q_strides[2], BLOCK_T, D, WIDTH)
                grad_tile = read(grad_head, start, queries, grad_strides[2], BLOCK_T, DV, WIDTH_V)
                level = tl.load(logsumexp + place + rows, mask=rows < queries, other=float("inf"))
                sums = tl.load(delta + place + rows, mask=rows < queries, other=0.0)
                scores = tl.dot(k_tile, tl.trans(q_tile), input_precision="ieee") * scale
                if limited or limits[0] is not None or limits[2] is not None:
                    scores = _limit(scores, rows[None, :], columns[:, None], limits, sizes, batch, head, CAUSAL)
                weights = tl.exp2(scores - level[None, :])
                v_sum = tl.dot(weights.to(grad_tile.dtype), grad_tile, v_sum, input_precision="ieee")
                products = tl.dot(v_tile, tl.trans(grad_tile), input_precision="ieee")
                slopes = weights * (products - sums[None, :])
                k_sum = tl.dot(slopes.to(q_tile.dtype), q_tile, k_sum, input_precision="ieee")
    write(dk, k_sum * (scale / LOG2_E), first, keys, dk_strides[2], BLOCK_S, D, WIDTH)
    write(dv, v_sum, first, keys, dv_strides[2], BLOCK_S, DV, WIDTH_V)
