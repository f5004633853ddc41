"""Ten thousand appends, forks, truncations and frees of a paged cache, which then is empty."""

import math
import random

import torch

from attn_core import attention
from attn_core.paged import BlockPool, as_tensors, paged_attention
from attn_core.paging import BlockTables, OutOfBlocks

STEPS, BLOCKS, BLOCK_SIZE = 10_000, 64, 4


def test_the_cache_is_empty_after_ten_thousand_operations():
    draw, made = random.Random(0), torch.Generator().manual_seed(0)
    tables, pool = BlockTables(BLOCKS, BLOCK_SIZE), BlockPool(BLOCKS, BLOCK_SIZE, 2, 3)
    pool.keys.fill_(math.nan)
    pool.values.fill_(math.nan)
    rows, counts = {}, dict.fromkeys(["append", "fork", "truncate", "free", "full"], 0)
    for step in range(STEPS):
        what = draw.choices(["append", "fork", "truncate", "free"], [6, 2, 1, 2])[0] if rows else "append"
        new_one = what == "append" and (not rows or draw.random() < 0.2)
        sequence = None if new_one else draw.choice(list(rows))
        if what == "append":
            if sequence is None:
                sequence = tables.start()
                rows[sequence] = (torch.empty(2, 0, 3), torch.empty(2, 0, 3))
            tokens = draw.randint(0, 5)
            try:
                slots, copies = tables.append(sequence, tokens)
            except OutOfBlocks:
                counts["full"] += 1
                tables.free(sequence)
                del rows[sequence]
                continue
            pool.copy(copies)
            new = [torch.randn(2, tokens, 3, generator=made) for _ in range(2)]
            pool.write(slots, *(x.transpose(0, 1) for x in new))
            rows[sequence] = tuple(torch.cat(pair, 1) for pair in zip(rows[sequence], new, strict=True))
        elif what == "fork":
            kept = draw.randint(0, tables.length(sequence))
            rows[tables.fork(sequence, kept)] = tuple(x[:, :kept] for x in rows[sequence])
        elif what == "truncate":
            kept = draw.randint(0, tables.length(sequence))
            tables.truncate(sequence, kept)
            rows[sequence] = tuple(x[:, :kept] for x in rows[sequence])
        else:
            tables.free(sequence)
            del rows[sequence]
        counts[what] += 1
        if step % 100 == 0 and rows:
            q = torch.randn(len(rows), 2, 1, 3, generator=made)
            with torch.no_grad():
                found = paged_attention(q, pool.keys, pool.values, *as_tensors(tables, list(rows)))
            for row, (k, v) in enumerate(rows.values()):
                wanted = attention(q[row : row + 1], k[None], v[None])
                assert (found[row] - wanted[0]).abs().max() < 1e-5
    assert sum(counts.values()) == STEPS and min(counts.values()) > 100, counts
    assert tables.used_blocks > 0
    for sequence in tables.sequences:
        tables.free(sequence)
    assert tables.sequences == () and tables.used_blocks == 0 and tables.free_blocks == BLOCKS
    assert tables.filled_slots == 0 and not any(tables.references(block) for block in range(BLOCKS))
    # All of it can be used again.
    tables.append(tables.start(), BLOCKS * BLOCK_SIZE)
    assert tables.free_blocks == 0
