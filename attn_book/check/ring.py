"""A check of the zigzag order, in which the processes of a ring hold their tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attn_book.check.exercise import Case, Check, Inputs, Misconception

_WORK = ("chapters/16_long_context", "Balancing the work: contiguous and striped order")


def _cases(draw: Inputs) -> Iterator[Case]:
    for processes in (3, draw.whole(4, 5)):
        tokens = 2 * processes * draw.whole(3, 6)
        yield Case(f"{tokens} tokens for {processes} processes", (tokens, processes))
    yield Case("as many chunks as tokens", (2 * processes, processes), edge=True)
    yield Case("a single process", (8, 1), edge=True)


def _chunks(tokens: int, processes: int) -> Tensor:
    return torch.arange(tokens).view(2 * processes, -1)


def _answer(tokens: int, processes: int) -> Tensor:
    chunks = _chunks(tokens, processes)
    return torch.cat([chunks[:processes], chunks.flip(0)[:processes]], 1)


def _mirrored(tokens: int, processes: int) -> Tensor:
    """The late chunks with their tokens backwards."""
    early, late = _answer(tokens, processes).chunk(2, 1)
    return torch.cat([early, late.flip(1)], 1)


def _late_first(tokens: int, processes: int) -> Tensor:
    return torch.cat(_answer(tokens, processes).chunk(2, 1)[::-1], 1)


def _in_step(tokens: int, processes: int) -> Tensor:
    """Chunk r of the first half, and chunk r of the second."""
    chunks = _chunks(tokens, processes)
    return torch.cat([chunks[:processes], chunks[processes:]], 1)


zigzag = Check(
    "zigzag",
    answer=_answer,
    cases=_cases,
    misconceptions=[
        Misconception(
            lambda tokens, processes: torch.arange(tokens).view(processes, -1),
            "each process gets one piece of the text",
            "That is the contiguous order. Cut the text into twice as many chunks as there are processes.",
            _WORK,
        ),
        Misconception(
            lambda tokens, processes: torch.arange(tokens).view(-1, processes).T,
            "single tokens are dealt out",
            "That is the striped order. Here each process holds two chunks of neighbouring tokens.",
            _WORK,
        ),
        Misconception(
            _in_step,
            "process r gets chunk r of the second half, too",
            "Then the last process has the latest chunk of both halves, and the most work. Count the second chunk from "
            "the back.",
            _WORK,
        ),
        Misconception(
            _mirrored,
            "the tokens of the late chunk are in reverse",
            "Only the order of the chunks is reversed; inside a chunk the tokens stay in the order of the text.",
            _WORK,
        ),
        Misconception(
            _late_first,
            "the late chunk comes before the early one",
            "A process holds its tokens in the order of the text.",
            _WORK,
        ),
        Misconception(
            lambda tokens, processes: _answer(tokens, processes).flip(0),
            "process 0 gets the two chunks in the middle",
            "Process 0 gets the first and the last chunk; the last process gets the two in the middle.",
            _WORK,
        ),
    ],
    hints=[
        "Make a table of the 2P chunks, one in each row: torch.arange(tokens).view(2 * processes, -1).",
        "Its first P rows are the early chunks. The late ones are the first P rows of the table in reverse order.",
    ],
)
