"""One decoding step's attention of requests that begin alike: what they share read once, or by each of them.

Eight requests share 1,024 tokens and have 64 tokens of their own, as questions about one document do. All contenders
find the same numbers. The heads are those of SmolLM2-135M: nine of queries, three of keys and values, of size 64.
"""

from collections.abc import Callable
from functools import partial

import torch

from attn_core.cache import cascade_attention, gathered_attention, paged_attention
from benchmarks.measure import Trial, Work

HEADS, GROUPS, HEAD_DIM, BLOCK_SIZE = 9, 3, 64, 16


def inputs(
    shared: int, rows: int, own: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values in blocks, the table, whose rows begin with the same blocks, and the lengths."""
    begin, rest = shared // BLOCK_SIZE, own // BLOCK_SIZE
    draw = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, begin + rows * rest, GROUPS, BLOCK_SIZE, HEAD_DIM, generator=draw).to(device)
    q = torch.randn(rows, HEADS, 1, HEAD_DIM, generator=draw).to(device)
    table = torch.cat([torch.arange(begin).expand(rows, -1), begin + torch.arange(rows * rest).view(rows, rest)], 1)
    return q, keys, values, table.to(device), torch.full((rows,), shared + own)


def cascade(shared: int, rows: int, own: int, device: torch.device) -> Work:
    """What is shared once, the rest row by row."""
    given = inputs(shared, rows, own, device)
    return lambda: cascade_attention(*given, shared // BLOCK_SIZE)


def plain(attend: Callable[..., torch.Tensor], shared: int, rows: int, own: int, device: torch.device) -> Work:
    """Each row with all of its tokens."""
    given = inputs(shared, rows, own, device)
    return lambda: attend(*given)


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """A beginning of 1,024 tokens, and a short one, with which it does not pay."""
    found = []
    for shared in (1024, 128):
        sizes = (64, 3, 16, device) if quick else (shared, 8, 64, device)
        found.append(
            Trial(
                f"{shared} tokens shared",
                {"B": sizes[1], "H": HEADS, "G": GROUPS, "shared": sizes[0], "own": sizes[2], "D": HEAD_DIM},
                torch.float32,
                ours={"cascade_attention": partial(cascade, *sizes)},
                peers={
                    "paged_attention": partial(plain, paged_attention, *sizes),
                    "gathered_attention": partial(plain, gathered_attention, *sizes),
                },
            )
        )
    return found
