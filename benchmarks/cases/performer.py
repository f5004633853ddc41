"""Attention by positive random features: ours beside performer-pytorch's, with the same features.

performer-pytorch adds 1e-4 to each feature, which shows where features are small: at unit variance its output is not
far from the mean of the values. Queries and keys are a quarter of that here, and the outputs agree. Its causal form is
the one in plain PyTorch, which it takes where the CUDA code of another package is missing.
"""

import contextlib
import functools
import importlib
import io
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from attn_core.mechanisms.performer import Performer
from benchmarks.measure import Trial, Work

HEADS, HEAD_DIM, FEATURES = 8, 64, 256
INPUT_SCALE = 0.25

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


def prepare(
    make: Callable[[bool, torch.device], Attention], length: int, *, causal: bool, backward: bool, device: torch.device
) -> Work:
    """The inputs, the same for all, and the work on them: the output, and the gradients of q, k and v."""
    attend = make(causal, device)
    draw = torch.Generator().manual_seed(0)
    q, k, v, toward = (torch.randn(1, HEADS, length, HEAD_DIM, generator=draw).to(device) for _ in range(4))
    q, k = INPUT_SCALE * q, INPUT_SCALE * k
    if not backward:
        return lambda: attend(q, k, v)

    def both() -> tuple[Tensor, ...]:
        inputs = q.requires_grad_(), k.requires_grad_(), v.requires_grad_()
        out = attend(*inputs)
        return out.detach(), *torch.autograd.grad(out, inputs, toward)

    return both


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Two lengths, full and causal; backward where the peer's does not fill the memory."""
    found = []
    for name, length in {"2048": 16, "8192": 40}.items() if quick else {"2048": 2048, "8192": 8192}.items():
        for causal, backward in ((False, False), (False, True), (True, False)):
            setting = functools.partial(prepare, length=length, causal=causal, backward=backward, device=device)
            way = "forward and backward" if backward else "forward"
            found.append(
                Trial(
                    f"{name} keys, {'causal' if causal else 'full'}, {way}",
                    {"B": 1, "H": HEADS, "T": length, "S": length, "D": HEAD_DIM, "features": FEATURES},
                    torch.float32,
                    ours={"Performer": functools.partial(setting, ours)},
                    peers={"performer-pytorch FastAttention": functools.partial(setting, performer_pytorch)},
                    rounds=3 if causal and not quick else 15,  # the peer's takes long
                    # The 1e-4 shows most in gradients, and in the causal form's first rows, which have few keys.
                    tolerance=5e-3 if causal or backward else 5e-4,
                )
            )
    return found
