"""One decoding step's attention over a ragged cache: ours through a block table beside two contiguous ways.

All find the same numbers for the same tokens. One peer is our own `KVCache` with `attention` under a mask of lengths,
which reserves every row the longest row's room and reads it all. The other has the same blocks, gathers them into one
tensor and calls PyTorch's fused kernel. What the caches themselves hold is no part of the memory measured: `report`
gives it, and how much of it holds a token.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_core import KVCache, attention, masks
from attn_core.cache import BlockPool, BlockTables, as_tensors, paged_attention
from benchmarks.measure import Trial, Work

HEADS, HEAD_DIM, BLOCK_SIZE = 8, 64, 16


def row_lengths(batch: int, longest: int) -> list[int]:
    """Evenly from a ninth of the longest to all of it, in no order."""
    draw = torch.Generator().manual_seed(0)
    lengths = torch.linspace(longest / 9, longest, batch).long()
    return lengths[torch.randperm(batch, generator=draw)].tolist()


def rows(lengths: list[int], groups: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The keys and values of each row in turn, (1, G, length, D) each, the same for all contenders."""
    draw = torch.Generator().manual_seed(1)
    for length in lengths:
        k, v = torch.randn(2, 1, groups, length, HEAD_DIM, generator=draw)
        yield k, v


def queries(batch: int, device: torch.device) -> Tensor:
    """One query a row and head."""
    return torch.randn(batch, HEADS, 1, HEAD_DIM, generator=torch.Generator().manual_seed(2)).to(device)


def blocks(lengths: list[int], groups: int, device: torch.device) -> tuple[BlockTables, BlockPool, Tensor, Tensor]:
    """The rows in blocks, which are handed out in turn, as to sequences that grow together; the table, the lengths."""
    tables = BlockTables(sum(-(-length // BLOCK_SIZE) for length in lengths), BLOCK_SIZE)
    pool = BlockPool(tables.num_blocks, BLOCK_SIZE, groups, HEAD_DIM, device=device)
    for store in (pool.keys, pool.values):  # `gathered` also reads the slots that are never written
        store.zero_()
    sequences = [tables.add_sequence() for _ in lengths]
    for begin in range(0, max(lengths), BLOCK_SIZE):
        growth = {s: min(BLOCK_SIZE, n - begin) for s, n in zip(sequences, lengths, strict=True) if n > begin}
        tables.append_all(growth)
    for sequence, (k, v) in zip(sequences, rows(lengths, groups), strict=True):
        slots = [(block, offset) for block in tables.table(sequence) for offset in range(BLOCK_SIZE)]
        new = (x[0].transpose(0, 1).to(device) for x in (k, v))
        pool.write(torch.tensor(slots[: tables.length(sequence)]), *new)
    return tables, pool, *as_tensors(tables, sequences, device=device)


def through_the_table(lengths: list[int], groups: int, device: torch.device) -> Work:
    """`paged_attention`."""
    _, pool, table, counts = blocks(lengths, groups, device)
    q = queries(len(lengths), device)
    return lambda: paged_attention(q, pool.keys, pool.values, table, counts)


def contiguous(lengths: list[int], groups: int, device: torch.device) -> Work:
    """`KVCache` and `attention`."""
    cache = KVCache(len(lengths), groups, max(lengths), HEAD_DIM, device=device)
    for row, (k, v) in enumerate(rows(lengths, groups)):
        cache.keys[row, :, : k.shape[2]], cache.values[row, :, : v.shape[2]] = k[0], v[0]
    q, counts = queries(len(lengths), device), torch.tensor(lengths, device=device)

    def work() -> Tensor:
        mask = masks.length_mask(counts, max(lengths))[:, None, None]
        return attention(q, cache.keys, cache.values, mask=mask)

    return work


def gathered(lengths: list[int], groups: int, device: torch.device) -> Work:
    """All blocks into one tensor, then PyTorch's kernel."""
    _, pool, table, counts = blocks(lengths, groups, device)
    q, table, counts = queries(len(lengths), device), table.clamp(min=0), counts.to(device)

    def work() -> Tensor:
        k, v = (store[table].transpose(1, 2).flatten(2, 3) for store in (pool.keys, pool.values))
        mask = masks.length_mask(counts, k.shape[2])[:, None, None]
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=groups != HEADS)

    return work


def report(
    works: Mapping[str, Work], seconds: Mapping[str, list[float]], lengths: list[int], groups: int
) -> dict[str, Any]:
    """MiB that each kind of cache reserves in float32, and how much of it holds a token."""
    token = 2 * groups * HEAD_DIM * 4 / 2**20
    slots = {
        "blocks": sum(-(-length // BLOCK_SIZE) * BLOCK_SIZE for length in lengths),
        "contiguous": len(lengths) * max(lengths),
    }
    return {
        name: {"mib": round(reserved * token, 1), "holds_tokens": round(sum(lengths) / reserved, 4)}
        for name, reserved in slots.items()
    }


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Eight key heads, two, and one, for eight query heads."""
    batch, longest = (3, 40) if quick else (8, 8192)
    lengths, found = row_lengths(batch, longest), []
    for groups in (8, 2, 1):

        def contender(make: Callable[..., Work], groups: int = groups) -> Callable[[], Work]:
            return functools.partial(make, lengths, groups, device)

        shapes = {"B": batch, "H": HEADS, "G": groups, "T": 1, "S": longest, "D": HEAD_DIM, "block_size": BLOCK_SIZE}
        found.append(
            Trial(
                f"{groups} key heads",
                shapes,
                torch.float32,
                ours={"paged_attention": contender(through_the_table)},
                peers={
                    "KVCache and attention": contender(contiguous),
                    "gathered, then torch": contender(gathered),
                },
                report=functools.partial(report, lengths=lengths, groups=groups),
            )
        )
    return found
