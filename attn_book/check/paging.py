"""Checks of gathering keys from a paged cache, and the blocks that a window touches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_PAGE = "chapters/12_serving"
_PAGES = (_PAGE, "Blocks and block tables")
_THROUGH = (_PAGE, "Attention through the table")
_WINDOWS = ("chapters/11_kv_cache", "Fewer tokens: windows and sinks")


# Keys in blocks.


def _stored(draw: Inputs, block: int, lengths: list[int], size: int) -> tuple[Tensor, Tensor, Tensor]:
    """A pool of blocks in random order, the block table, which is padded with −1, and the lengths."""
    needed = [-(-length // block) for length in lengths]
    order = draw.uniform(sum(needed) + 3).argsort()
    table = torch.full((len(lengths), max(needed) + 1), -1)
    for row, (count, blocks) in enumerate(zip(needed, order.split([*needed, 3])[:-1], strict=True)):
        table[row, :count] = blocks.flip(0) if (blocks.diff() > 0).all() else blocks
    return draw.normal(len(order), block, size), table, torch.tensor(lengths)


def _cases(draw: Inputs) -> Iterator[Case]:
    block, size = draw.whole(3, 5), draw.whole(2, 4)
    for name, lengths in (
        ("two sequences", [2 * block + 1, 3 * block - 1]),
        ("three sequences", [block - 1, 3 * block + draw.whole(1, 2), 2 * block]),
    ):
        pool, table, counts = _stored(draw, block, lengths, size)
        yield Case(name, (pool, table, counts))
    spoiled = torch.full_like(pool, torch.nan)
    for row, length in enumerate(lengths):
        for i in range(length):
            at = int(table[row, i // block]), i % block
            spoiled[at] = pool[at]
    yield Case("slots that were never written and hold NaN", (spoiled, table, counts), edge=True)
    stale = torch.where(table < 0, table[1, 0], table)
    yield Case("a table padded with blocks of another sequence", (spoiled, stale, counts), edge=True)
    yield Case("a sequence of length 0", (pool, table, counts * torch.tensor([0, 1, 1])), edge=True)


def _read(pool: Tensor, table: Tensor) -> Tensor:
    """Every slot in the order of the table, (B, M · P, D)."""
    return pool[table].flatten(1, 2)


def _until(keys: Tensor, lengths: Tensor) -> Tensor:
    """Zeros after the lengths, and nothing after the longest."""
    longest = int(lengths.max())
    there = torch.arange(longest) < lengths[:, None]
    return keys[:, :longest].masked_fill(~there[..., None], 0.0)


def _whole_blocks(pool: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    filled = -(-lengths // pool.shape[1]) * pool.shape[1]
    return _until(_read(pool, table), filled)[:, : int(lengths.max())]


gather_pages = Check(
    "gather_pages",
    answer=lambda pool, table, lengths: _until(_read(pool, table), lengths),
    cases=_cases,
    misconceptions=[
        Misconception(
            lambda pool, table, lengths: _read(pool, table)[:, : int(lengths.max())],
            "a shorter sequence is read past its end",
            "The slots after the end belong to another sequence or were never written: −1 is the last block of "
            "the pool.",
            _THROUGH,
        ),
        Misconception(
            _whole_blocks,
            "the last block of a sequence is read to its end",
            "The sequence may end inside the block, and the slots after that hold arbitrary values.",
            _THROUGH,
        ),
        Misconception(
            lambda pool, table, lengths: _until(_read(pool, table), lengths // pool.shape[1] * pool.shape[1])[
                :, : int(lengths.max())
            ],
            "only full blocks are read",
            "The last block holds keys too: a sequence has ⌈length / block size⌉ blocks.",
            _PAGES,
        ),
        Misconception(
            lambda pool, table, lengths: _until(_read(pool, table.sort(1, descending=True).values), lengths),
            "the blocks are read in the order of their numbers",
            "The block table gives the order, and it has nothing to do with where a block lies in memory.",
            _PAGES,
        ),
        Misconception(
            lambda pool, table, lengths: _until(pool[table].transpose(1, 2).flatten(1, 2), lengths),
            "the first slots of all blocks are read first, then the second ones",
            "A block's slots follow each other: word i is in slot i mod P of the table's block ⌊i / P⌋.",
            _PAGES,
        ),
        Misconception(
            lambda pool, table, lengths: _until(pool.flatten(0, 1).expand(len(table), -1, -1), lengths),
            "the pool is read from its beginning, without the table",
            "Every sequence would get the same keys.",
            _PAGES,
        ),
        Misconception(
            lambda pool, table, lengths: (
                _read(pool, table)[:, : int(lengths.max())]
                * (torch.arange(int(lengths.max())) < lengths[:, None])[..., None]
            ),
            "the slots after a sequence's end are multiplied by 0",
            "0 times NaN is NaN. Fill these positions with zeros instead.",
            _THROUGH,
        ),
    ],
    hints=[
        "Word i of a sequence lies in block table[i // P], slot i % P.",
        "pool[table] is (B, M, P, D): flatten blocks and slots into one axis, and cut at the longest length.",
        "Fill the slots after each length with 0, with masked_fill; a product would let NaN through.",
    ],
)


# The blocks that a window touches.


def _window_cases(draw: Inputs) -> Iterator[Case]:
    for name in ("a window", "a wider window"):
        block = draw.whole(5, 12)
        window = draw.whole(3, 9) * block + draw.whole(3, block - 1)
        yield Case(f"{name} of {window} words and blocks of {block}", (window, block))
    yield Case("a window of whole blocks", (6 * block, block), edge=True)
    yield Case("a window of one word more than whole blocks", (6 * block + 1, block), edge=True)
    yield Case("a window smaller than a block", (block - 2, block), edge=True)
    yield Case("blocks of one word", (window, 1), edge=True)


def _ceil(words: int, block: int) -> int:
    return -(-words // block)


blocks_touched = Check(
    "blocks_touched",
    answer=lambda window, block: (_ceil(window, block), _ceil(window - 1, block) + 1),
    cases=_window_cases,
    misconceptions=[
        Misconception(
            lambda window, block: (window // block, _ceil(window - 1, block) + 1),
            "the smallest number is rounded down",
            "A window that begins with a block and ends inside another block touches that block too.",
            _PAGES,
        ),
        Misconception(
            lambda window, block: (_ceil(window, block), _ceil(window, block)),
            "the window always begins at the start of a block",
            "The window moves with every word, so it can begin anywhere in a block.",
            _WINDOWS,
        ),
        Misconception(
            lambda window, block: (_ceil(window, block), _ceil(window, block) + 1),
            "the largest number is taken to be one more than the smallest",
            "A window one word longer than a number of whole blocks never touches more: try 17 words with blocks "
            "of 16.",
            _WINDOWS,
        ),
        Misconception(
            lambda window, block: (_ceil(window, block), window // block + 2),
            "one block is counted for each end, and all whole blocks between them",
            "The ends can lie in two further blocks only if at least two words are left over.",
            _WINDOWS,
        ),
        Misconception(
            lambda window, block: (_ceil(window - 1, block) + 1, _ceil(window, block)),
            "the smallest and the largest number are exchanged",
            "The smallest comes first.",
            _WINDOWS,
        ),
    ],
    hints=[
        "Slide the window along: len({position // block for position in range(end - window, end)}), for many ends.",
        (
            "It touches the fewest blocks if it begins with a block, and the most if it begins with the last "
            "word of a block."
        ),
    ],
)
