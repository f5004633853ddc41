"""Softmax attention over every key: our fast and explicit paths beside d2l's attention and PyTorch's fused kernel.

All get the same q, k and v. d2l's attention has no axis of heads, so it gets them folded into the batch (a view), and
it masks by lengths. `torch.nn.MultiheadAttention` has no form without projections: it belongs to multi-head attention.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.companion import load_d2l
from attn_core import attention, attention_with_weights, masks
from benchmarks.measure import Trial, Work

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
HEADS, HEAD_DIM = 8, 64


def fast(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
    """Ours, fused."""
    return attention(q, k, v, mask=mask(lengths, k))


def explicit(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
    """Ours, step by step, with the weights in memory."""
    return attention_with_weights(q, k, v, mask=mask(lengths, k))[0]


def fused(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
    """PyTorch's kernel alone, with no checks around it."""
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask(lengths, k))


def mask(lengths: Tensor | None, k: Tensor) -> Tensor | None:
    """Lengths (B,) as a mask (B, 1, 1, S)."""
    return None if lengths is None else masks.length_mask(lengths, k.shape[2])[:, None, None]


def d2l_attention() -> Attention:
    """d2l's `DotProductAttention` on the contract's shapes.

    Raises ImportError where d2l is not installed.
    """
    module = load_d2l().DotProductAttention(dropout=0.0)

    def attend(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
        heads = None if lengths is None else lengths.repeat_interleave(q.shape[1])
        out: Tensor = module(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), heads)
        return out.view(q.shape)

    return attend


def prepare(
    make: Callable[[], Attention], batch: int, length: int, *, padded: bool, backward: bool, device: torch.device
) -> Work:
    """The inputs, the same for all, and the work on them: the output, and the gradients of q, k and v."""
    attend = make()
    draw = torch.Generator().manual_seed(0)
    shape = (batch, HEADS, length, HEAD_DIM)
    q, k, v, toward = (torch.randn(shape, generator=draw).to(device) for _ in range(4))
    # A quarter of the keys is padding: the lengths run evenly from half to all of them.
    lengths = torch.linspace(length / 2, length, batch).long().to(device) if padded else None
    if not backward:
        return lambda: attend(q, k, v, lengths)

    def both() -> tuple[Tensor, ...]:
        inputs = q.requires_grad_(), k.requires_grad_(), v.requires_grad_()
        out = attend(*inputs, lengths)
        return out.detach(), *torch.autograd.grad(out, inputs, toward)

    return both


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Short and long, with and without padding, forward and both ways."""
    found = []
    sizes = {"short": (8, 16), "long": (2, 64)} if quick else {"short": (8, 512), "long": (2, 2048)}
    for (size, (batch, length)), padded, backward in itertools.product(sizes.items(), (False, True), (False, True)):
        options: dict[str, Any] = {
            "batch": batch,
            "length": length,
            "padded": padded,
            "backward": backward,
            "device": device,
        }
        setting = functools.partial(prepare, **options)
        padding, way = "padded" if padded else "full", "forward and backward" if backward else "forward"
        found.append(
            Trial(
                f"{size}, {padding}, {way}",
                {"B": batch, "H": HEADS, "T": length, "S": length, "D": HEAD_DIM},
                torch.float32,
                ours={
                    "attention": functools.partial(setting, lambda: fast),
                    "attention_with_weights": functools.partial(setting, lambda: explicit),
                },
                peers={
                    "d2l DotProductAttention": functools.partial(setting, d2l_attention),
                    "torch scaled_dot_product_attention": functools.partial(setting, lambda: fused),
                },
            )
        )
    return found
