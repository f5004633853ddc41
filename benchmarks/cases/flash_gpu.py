"""Our Triton kernels beside PyTorch's: its flash backend, which is FlashAttention-2, and cuDNN's, on a CUDA device.

bfloat16, 16,384 tokens at a time in rows of 1k to 16k, and heads that make up a model size of 2048. The backward pass
is timed alone. Nothing runs without a CUDA device.
"""

import functools
import itertools
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from attn_core import flash_attention
from benchmarks.measure import Trial, Work

Attention = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
TOKENS, MODEL_DIM = 16384, 2048
BACKENDS = {"torch flash": SDPBackend.FLASH_ATTENTION, "torch cuDNN": SDPBackend.CUDNN_ATTENTION}


def ours(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Our kernels."""
    return flash_attention(q, k, v, causal=causal)


def backend(which: SDPBackend, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """One of PyTorch's, or nothing.

    Raises ImportError where it has no kernel.
    """
    try:
        with sdpa_kernel(which):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    except RuntimeError as error:
        raise ImportError(f"no kernel on this device: {error}") from error


def prepare(
    attend: Attention, batch: int, length: int, head_dim: int, *, causal: bool, backward: bool, device: torch.device
) -> Work:
    """The inputs, the same for all, and the work on them: the output, or the gradients of q, k and v."""
    draw = torch.Generator(device).manual_seed(0)
    shape = (batch, MODEL_DIM // head_dim, length, head_dim)
    options: dict[str, Any] = {"generator": draw, "device": device, "dtype": torch.bfloat16}
    q, k, v, toward = (torch.randn(shape, **options) for _ in range(4))
    attend(q, k, v, causal)  # a contender that cannot says so now
    if not backward:
        return lambda: attend(q, k, v, causal)
    inputs = q.requires_grad_(), k.requires_grad_(), v.requires_grad_()
    out = attend(*inputs, causal)
    return lambda: torch.autograd.grad(out, inputs, toward, retain_graph=True)


def rate(operations: float, works: Mapping[str, Work], seconds: Mapping[str, list[float]]) -> dict[str, Any]:
    """TFLOP/s of each contender."""
    return {name: round(operations / statistics.median(seconds[name]) / 1e12, 1) for name in works}


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Rows of 1k to 16k, two head sizes, with and without the causal mask, forward and backward."""
    if device.type != "cuda":
        print("flash_gpu: nothing to measure without a CUDA device")
        return []
    found = []
    for thousands, head_dim, causal, backward in itertools.product(
        (1, 2, 4, 8, 16), (64, 128), (False, True), (False, True)
    ):
        length = thousands * (16 if quick else 1024)
        batch = 1 if quick else TOKENS // length
        way: dict[str, Any] = {"causal": causal, "backward": backward, "device": device}
        setting = functools.partial(prepare, batch=batch, length=length, head_dim=head_dim, **way)
        # Two products forward, five backward; half of each under the causal mask.
        operations = (5 if backward else 2) * 2 * batch * MODEL_DIM * length**2 / (2 if causal else 1)
        words = f"{'causal' if causal else 'full'}, {'backward' if backward else 'forward'}"
        found.append(
            Trial(
                f"rows of {thousands}k, heads of {head_dim}, {words}",
                {"B": batch, "H": MODEL_DIM // head_dim, "T": length, "S": length, "D": head_dim},
                torch.bfloat16,
                ours={"flash_attention_triton": functools.partial(setting, ours)},
                peers={
                    name: functools.partial(setting, functools.partial(backend, which))
                    for name, which in BACKENDS.items()
                },
                tolerance=3e-2,
                report=functools.partial(rate, operations),
            )
        )
    return found
