"""FlashAttention-2 on NVIDIA GPUs: the tiled attention of ``mechanisms/flash.py``, in kernels of our own.

Needs the package ``triton``. If ``TRITON_INTERPRET=1`` is set in the environment before ``triton`` is imported, the
kernels run on a CPU, slowly.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from attn_core.contract import Call
from attn_core.derivatives import first_order
from attn_core.mechanisms import flash_triton_kernels as kernels
from attn_core.mechanisms.dense import weigh
from attn_core.mechanisms.tiles import tiles

LARGEST_HEAD = 256


def flash_attention_triton(call: Call) -> Tensor:
    """``flash_attention`` of a checked call on a CUDA device; not of float64, or heads of more than 256 entries.

    The output lies in memory as ``(B, T, H, Dv)``, so that joining the heads copies nothing. Masks and biases are read
    where they lie. The first call for a head size and dtype measures which tiles are fastest, which takes seconds; from
    then on the same inputs give the same bits.
    """
    q, k, v, mask, bias, causal, factor = call
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(f"q: expected float16, bfloat16 or float32, got {q.dtype}")
    for name, tensor in (("q", q), ("v", v)):
        if tensor.shape[3] > LARGEST_HEAD:
            raise ValueError(f"{name}: expected a head size of at most {LARGEST_HEAD}, got {tensor.shape[3]}")
    if q.numel() == 0 or k.numel() == 0 or v.numel() == 0:
        return weigh(call)[0]
    if factor < 0:  # the kernels find the largest score as the largest product
        q, factor = -q, -factor
    causal = causal and q.shape[2] > 1  # the last query sees every key
    return first_order("flash_attention", _Flash, q, k, v, mask, bias, causal, factor)


def _tuned(kernel: Any, name: str) -> Any:
    """The kernel, which tries the tiles that suit its inputs when it first meets their head size and dtype."""

    def suited(_: Any, arguments: dict[str, Any], **__: Any) -> list[triton.Config]:
        found = tiles(name, max(arguments["SHAPE"][2:]), arguments["q"].dtype)
        return [triton.Config({"BLOCK_T": t, "BLOCK_S": s}, num_warps=w, num_stages=n) for t, s, w, n in found]

    # A kernel with one configuration takes it, as in the interpreter; with two, Triton asks `suited`.
    every = [triton.Config({"BLOCK_T": 16, "BLOCK_S": 16})] * (1 if kernels.INTERPRETED else 2)
    return triton.autotune(every, key=["SHAPE"], prune_configs_by={"early_config_prune": suited})(kernel)


_forward = _tuned(kernels.forward, "forward")
_backward_q = _tuned(kernels.backward_q, "backward_q")
_backward_kv = _tuned(kernels.backward_kv, "backward_kv")


@dataclass(frozen=True)
class _Flash:
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    bias: Tensor | None
    causal: bool
    scale: float

    def forward(self) -> tuple[Tensor, Tensor]:
        """The output, and for each row the base-2 logarithm of its sum of exponentials."""
        out, logsumexp = _like(self.q, self.v.shape[3]), self.q.new_empty(self.q.shape[:3], dtype=torch.float32)
        self.launch([], [out, logsumexp])
        return out, logsumexp

    def backward(self, out: Tensor, logsumexp: Tensor, grad: Tensor) -> list[Tensor]:
        gradients = [_like(x, x.shape[3]) for x in (self.q, self.k, self.v)]
        self.launch([grad, out, logsumexp], [*gradients, torch.empty_like(logsumexp)])
        return gradients

    def launch(self, read: list[Tensor], written: list[Tensor]) -> None:
        _launch([self.q, self.k, self.v, *read], written, self.mask, self.bias, self.causal, self.scale)


def _like(x: Tensor, size: int) -> Tensor:
    """Room for ``(…, size)`` like ``x (B, H, T, …)``, in memory ``(B, T, H, size)``."""
    batch, heads, length = x.shape[:3]
    return x.new_empty(batch, length, heads, size).transpose(1, 2)


@torch.library.custom_op("attn_core::flash", mutates_args=["written"])
def _launch(
    read: list[Tensor], written: list[Tensor], mask: Tensor | None, bias: Tensor | None, causal: bool, scale: float
) -> None:
    """The kernel of the forward pass, or the two of the backward pass, as an operator of PyTorch."""
    q, k, v, *others = (x if x.stride(-1) == 1 else x.contiguous() for x in read)
    shape = (*q.shape[:3], k.shape[2])
    limits: tuple[Any, ...] = ()
    for x in (mask, bias):
        limits += (None, None) if x is None else (x, x.broadcast_to(shape).stride())  # 0 along axes of one entry
    sizes: tuple[int, ...] = ()
    for size in (q.shape[3], v.shape[3]):
        sizes += size, max(16, triton.next_power_of_2(size))

    def run(kernel: Any, block: str, owner: Tensor, strided: tuple[Tensor, ...], by_row: tuple[Tensor, ...]) -> None:
        """``owner`` is q or k, of which a program has a tile; ``given`` and ``SHAPE`` are those of the kernels."""
        batch, heads, length = owner.shape[:3]
        given = limits, shape[1:], scale * kernels.LOG2_E.value, tuple(x.stride() for x in strided)
        programs = lambda chosen: (triton.cdiv(length, chosen[block]) * heads * batch,)  # noqa: E731
        kernel[programs](*strided, *by_row, given, (shape[1] // k.shape[1], causal, *sizes))

    with torch.cuda.device_of(q):
        if others:
            (grad, out, logsumexp), (dq, dk, dv, delta) = others, written
            run(_backward_q, "BLOCK_T", q, (q, k, v, grad, out, dq), (logsumexp, delta))
            run(_backward_kv, "BLOCK_S", k, (q, k, v, grad, dk, dv), (logsumexp, delta))
        else:
            run(_forward, "BLOCK_T", q, (q, k, v, written[0]), (written[1],))
