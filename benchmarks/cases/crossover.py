"""Every cheaper attention beside exact attention in PyTorch's fused kernel: from which length on does it pay?

Tiled attention is exact too; the others compute something else, so there is no same output to ask for, and the check
for sameness is left with the shapes, and that numbers are finite (`report` says so). How far each is from exact
attention depends on what it is given, and is measured where what it is given means something: in the chapters.

All get the same q, k and v, but hashed attention, which wants keys that are the queries. Nothing is projected: the
least of them, a Linformer's mixing of keys and values along the length, is part of its mechanism and is counted.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attn_core import (
    BlockSelection,
    LinearAttention,
    Linformer,
    LSHAttention,
    Performer,
    SlidingWindow,
    attention,
    flash_attention,
)
from benchmarks.measure import Trial, Work

Attention = Callable[..., Tensor]
HEADS, HEAD_DIM = 8, 64
WINDOW, SLOTS, FEATURES, ROUNDS, BUCKET = 256, 256, 256, 4, 64
BLOCK, SELECTED, LOCAL = 64, 4, 2
LENGTHS = {512: 9, 1024: 9, 2048: 9, 4096: 5, 8192: 3, 16384: 2}
"""And how many rounds."""
LONGER = {32768: 2}
"""On a GPU alone, where all is in bfloat16."""
ANY = 1e30
"""A tolerance that all finite numbers meet."""


def tiled(length: int, causal: bool) -> Attention:
    """Exact attention in tiles, as the chapter on flash attention writes it."""
    return flash_attention


def window(length: int, causal: bool) -> Attention:
    """The 256 neighbours on either side; under `causal` those before."""
    return SlidingWindow(WINDOW)


def linformer(length: int, causal: bool) -> nn.Module:
    """256 mixtures of the keys."""
    return Linformer(length, SLOTS)


def linear(length: int, causal: bool) -> nn.Module:
    """A state of 64 features by 64 values."""
    return LinearAttention()


def performer(length: int, causal: bool) -> nn.Module:
    """256 random features."""
    return Performer(HEAD_DIM, FEATURES)


def hashed(length: int, causal: bool) -> Attention:
    """Four rounds of hashes, 64 tokens to a bucket."""
    mechanism = LSHAttention(bucket_size=BUCKET, rounds=ROUNDS)
    return lambda q, k, v, causal: mechanism(q, q, v, causal=causal)


def selected(length: int, causal: bool) -> Attention:
    """The best four blocks of 64 keys for each query, and the nearest two."""
    return BlockSelection(BLOCK, selected=SELECTED, local=LOCAL)


def exact(length: int, causal: bool) -> Attention:
    """`attention`, which calls PyTorch's fused kernel."""
    return attention


def kept(device: torch.device) -> torch.dtype:
    """The dtype of everything: the one in which models run there."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def prepare(
    make: Callable[[int, bool], Attention], length: int, *, causal: bool, backward: bool, device: torch.device
) -> Work:
    """The inputs, the same for all, and the work on them: the output, and the gradients of what made it."""
    torch.manual_seed(1)
    attend = make(length, causal)
    weights = []
    if isinstance(attend, nn.Module):
        weights = list(attend.to(device, kept(device)).parameters())
    draw = torch.Generator().manual_seed(0)
    shape = (1, HEADS, length, HEAD_DIM)
    q, k, v, toward = (torch.randn(shape, generator=draw).to(device, kept(device)) for _ in range(4))

    @torch.no_grad()
    def forward() -> Tensor:
        return attend(q, k, v, causal=causal)

    def both() -> Tensor:
        leaves = q.requires_grad_(), k.requires_grad_(), v.requires_grad_()
        out = attend(*leaves, causal=causal)
        # Hashed attention has no gradient for k, which it does not read.
        torch.autograd.grad(out, [*leaves, *weights], toward, allow_unused=True)
        return out.detach()

    return both if backward else forward


def said(works: Mapping[str, Work], seconds: Mapping[str, list[float]]) -> dict[str, Any]:
    """What the check for sameness was."""
    return {"compared": "shapes, and that numbers are finite"}


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Six lengths, full and causal, forward and both ways.

    The longest leaves out what takes minutes and shows nothing new: attention in tiles, and causal both ways.
    """
    found = []
    lengths = LENGTHS | LONGER if device.type == "cuda" else LENGTHS
    for (n, rounds), causal, backward in itertools.product(lengths.items(), (False, True), (False, True)):
        longest = n >= max(LENGTHS)
        if longest and causal and backward:
            continue
        length = 64 if quick else n
        setting = functools.partial(prepare, length=length, causal=causal, backward=backward, device=device)
        makers = {
            "SlidingWindow": window,
            "LinearAttention": linear,
            "Performer": performer,
            "LSHAttention": hashed,
            "BlockSelection": selected,
        }
        if not causal:  # a Linformer's mixtures hold all keys
            makers["Linformer"] = linformer
        if not longest or device.type == "cuda":
            makers["flash_attention"] = tiled
        sizes = {"window": WINDOW, "slots": SLOTS, "features": FEATURES, "rounds": ROUNDS, "bucket": BUCKET}
        sizes |= {"block": BLOCK, "selected": SELECTED, "local": LOCAL}
        found.append(
            Trial(
                f"{n} tokens, {'causal' if causal else 'full'}, {'forward and backward' if backward else 'forward'}",
                {"B": 1, "H": HEADS, "n": length, "D": HEAD_DIM, **sizes},
                kept(device),
                ours={name: functools.partial(setting, make) for name, make in makers.items()},
                peers={"attention": functools.partial(setting, exact)},
                rounds=rounds,
                tolerance=ANY,
                report=said,
            )
        )
    return found
