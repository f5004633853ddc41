"""Attention by positive random features: ours beside performer-pytorch's, with the same features.

performer-pytorch adds 1e-4 to each feature, which shows where features are small: at unit variance its output is not
far from the mean of the values. Queries and keys are a quarter of that here, and the outputs agree. Its causal form is
the one in plain PyTorch, which it takes where the CUDA code of another package is missing; it is slow, and both ways it
keeps tensors of n · 256 · 64 entries for each head, so it takes part at some lengths only.

`report` holds how far each output is from exact attention's, as a part of that one's norm, and beside it how far the
mean of the values is: with inputs as small as these weights are near uniform, and an estimate has to beat that.
"""

import contextlib
import functools
import importlib
import io
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from attn_core import attention
from attn_core.mechanisms.performer import Performer
from benchmarks.measure import Trial, Work

HEADS, HEAD_DIM, FEATURES = 8, 64, 256
INPUT_SCALE = 0.25
LENGTHS, BOTH_WAYS = (512, 1024, 2048, 4096, 8192, 16384), (512, 2048, 8192)
CAUSAL, CAUSAL_BOTH_WAYS = (512, 2048, 8192), (512, 2048)

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def ours(causal: bool, device: torch.device) -> Attention:
    """`Performer`."""
    torch.manual_seed(1)
    return functools.partial(Performer(HEAD_DIM, FEATURES).to(device), causal=causal)


def performer_pytorch(causal: bool, device: torch.device) -> Attention:
    """Its `FastAttention`, with our features. Raises ImportError where it, or what it imports, is not installed."""
    # It warns of modules that it still uses, and prints which causal form it takes.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        peer: torch.nn.Module = importlib.import_module("performer_pytorch").FastAttention(
            HEAD_DIM, FEATURES, causal=causal
        )
    torch.manual_seed(1)
    features = Performer(HEAD_DIM, FEATURES).projection
    peer.get_buffer("projection_matrix").copy_(features)
    return peer.to(device)


def inputs(length: int, device: torch.device) -> list[Tensor]:
    """Queries, keys, values, and a gradient of the output: the same for all."""
    draw = torch.Generator().manual_seed(0)
    q, k, v, toward = (torch.randn(1, HEADS, length, HEAD_DIM, generator=draw).to(device) for _ in range(4))
    return [INPUT_SCALE * q, INPUT_SCALE * k, v, toward]


def prepare(
    make: Callable[[bool, torch.device], Attention], length: int, *, causal: bool, backward: bool, device: torch.device
) -> Work:
    """The work: the output, and the gradients of q, k and v."""
    attend = make(causal, device)
    q, k, v, toward = inputs(length, device)
    if not backward:
        return lambda: attend(q, k, v)

    def both() -> tuple[Tensor, ...]:
        leaves = q.requires_grad_(), k.requires_grad_(), v.requires_grad_()
        out = attend(*leaves)
        return out.detach(), *torch.autograd.grad(out, leaves, toward)

    return both


def errors(
    works: Mapping[str, Work], seconds: Mapping[str, list[float]], length: int, causal: bool, device: torch.device
) -> dict[str, Any]:
    """How far from exact attention, relative to its norm: each contender's output, and the mean of the values."""
    q, k, v, _ = inputs(length, device)
    exact = attention(q, k, v, causal=causal)
    seen = torch.arange(1, length + 1, device=device)[:, None]
    mean = v.cumsum(2) / seen if causal else v.mean(2, keepdim=True).expand_as(v)
    outs = {name: work() for name, work in works.items()} | {"mean of the values": mean}
    return {"error": {name: float(f"{(out - exact).norm() / exact.norm():.3g}") for name, out in outs.items()}}


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Full at every length, causal at some; both ways where the peer does not fill the memory."""
    found = []
    settings = [(n, False, False) for n in LENGTHS] + [(n, False, True) for n in BOTH_WAYS]
    settings += [(n, True, False) for n in CAUSAL] + [(n, True, True) for n in CAUSAL_BOTH_WAYS]
    for n, causal, backward in settings:
        length = 16 if quick else n
        setting = functools.partial(prepare, length=length, causal=causal, backward=backward, device=device)
        report = {} if backward else {"report": functools.partial(errors, length=length, causal=causal, device=device)}
        kind, way = "causal" if causal else "full", "forward and backward" if backward else "forward"
        found.append(
            Trial(
                f"{n} tokens, {kind}, {way}",
                {"B": 1, "H": HEADS, "n": length, "D": HEAD_DIM, "features": FEATURES},
                torch.float32,
                ours={"Performer": functools.partial(setting, ours)},
                peers={"performer-pytorch FastAttention": functools.partial(setting, performer_pytorch)},
                rounds=3 if causal else 9,  # the peer's takes long
                # The 1e-4 shows most in gradients, and in the causal form's first rows, which have few keys.
                tolerance=5e-3 if causal or backward else 5e-4,
                **report,
            )
        )
    return found
