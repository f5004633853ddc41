"""Attention in tiles beside attention with its scores in memory, and beside PyTorch's fused kernel.

All get the same q, k and v. The explicit contender is the least that writes the scores down: two products and a
softmax, the future hidden in place, no care for empty rows.
"""

import functools
import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from attn_core import masks
from attn_core.mechanisms.flash import flash_attention
from benchmarks.measure import Trial, Work

Attention = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
HEADS, HEAD_DIM = 8, 64


def tiled(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Ours."""
    return flash_attention(q, k, v, causal=causal)


def explicit(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """The formula as it stands: at its highest, scores and weights are both in memory."""
    scores = (q / math.sqrt(q.shape[3])) @ k.mT
    if causal:
        scores.masked_fill_(~masks.causal(q.shape[2], k.shape[2], device=q.device), -math.inf)
    return scores.softmax(-1) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """PyTorch's kernel, which is tiled too, in C++."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def prepare(attend: Attention, length: int, *, causal: bool, backward: bool, device: torch.device) -> Work:
    """The inputs, the same for all, and the work on them: the output, and the gradients of q, k and v."""
    draw = torch.Generator().manual_seed(0)
    shape = (1, HEADS, length, HEAD_DIM)
    q, k, v, toward = (torch.randn(shape, generator=draw).to(device) for _ in range(4))
    if not backward:
        return lambda: attend(q, k, v, causal)

    def both() -> tuple[Tensor, ...]:
        inputs = q.requires_grad_(), k.requires_grad_(), v.requires_grad_()
        out = attend(*inputs, causal)
        return out.detach(), *torch.autograd.grad(out, inputs, toward)

    return both


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Three lengths, causal and not, forward and both ways.

    At the longest, causal and both ways, the explicit contender is left out: it needs 6 GiB and half a minute a run.
    """
    found = []
    sizes = {"short": (16, 3), "long": (40, 3), "longest": (64, 3)}
    if not quick:
        sizes = {"short": (1024, 15), "long": (4096, 5), "longest": (8192, 3)}
    for (size, (length, rounds)), causal, backward in itertools.product(sizes.items(), (False, True), (False, True)):
        setting = functools.partial(prepare, length=length, causal=causal, backward=backward, device=device)
        peers = {"explicit": explicit, "torch scaled_dot_product_attention": fused}
        if size == "longest" and causal and backward:
            del peers["explicit"]
        kind, way = "causal" if causal else "full", "forward and backward" if backward else "forward"
        found.append(
            Trial(
                f"{size}, {kind}, {way}",
                {"B": 1, "H": HEADS, "T": length, "S": length, "D": HEAD_DIM},
                torch.float32,
                ours={"flash_attention": functools.partial(setting, tiled)},
                peers={name: functools.partial(setting, attend) for name, attend in peers.items()},
                rounds=rounds,
            )
        )
    return found
