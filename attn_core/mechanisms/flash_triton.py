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
    return first_order("flash_attention", _Kernels, q, k, v, mask, bias, causal, factor)


# The tiles to try (queries, keys, warps, stages of the pipeline), by the largest head size in 16 bits that they serve.
# The key 0 is for float32, which uses no tensor cores here. The last tile of a row fits GPUs with 100 KB of shared
# memory; some of the others need Hopper's 227 KB, and so does float32 with heads of more than 128 entries.
_Tiles = dict[int, list[tuple[int, int, int, int]]]
_FORWARD: _Tiles = {
    0: [(32, 32, 4, 2)],
    64: [(128, 64, 4, 3), (128, 128, 8, 3), (128, 64, 8, 3), (64, 64, 4, 3)],
    128: [(128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2)],
    256: [(128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 4, 2)],
}
_BACKWARD_Q: _Tiles = {
    0: [(32, 32, 4, 2)],
    64: [(128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 2)],
    128: [(128, 128, 8, 2), (128, 64, 8, 2), (64, 64, 4, 2), (64, 32, 4, 2)],
    256: [(64, 64, 8, 2), (64, 32, 4, 2), (32, 32, 4, 2)],
}
_BACKWARD_KV: _Tiles = {
    0: [(16, 32, 8, 1)],
    64: [(64, 128, 8, 3), (64, 128, 8, 2), (64, 64, 4, 2)],
    128: [(64, 128, 8, 2), (64, 64, 8, 2), (32, 128, 8, 3), (64, 64, 4, 2), (32, 64, 4, 2)],
    256: [(32, 64, 8, 2), (32, 32, 4, 2)],
}


def _tuned(kernel: Any, tiles: _Tiles) -> Any:
    """The kernel, which tries the tiles that suit its inputs when it first meets their head size and dtype."""
    if kernels.INTERPRETED:
        tiles = {0: [(16, 16, 4, 1)]}
    configs = {
        size: [triton.Config({"BLOCK_T": t, "BLOCK_S": s}, num_warps=w, num_stages=n) for t, s, w, n in row]
        for size, row in tiles.items()
    }

    def suited(_: Any, arguments: dict[str, Any], **__: Any) -> list[triton.Config]:
        head_size = 0 if arguments["q"].dtype == torch.float32 else max(arguments["SHAPE"][2:])
        return configs[min(size for size in configs if size >= head_size)]

    every = [config for row in configs.values() for config in row]
    return triton.autotune(every, key=["SHAPE"], prune_configs_by={"early_config_prune": suited})(kernel)


_forward = _tuned(kernels.forward, _FORWARD)
_backward_q = _tuned(kernels.backward_q, _BACKWARD_Q)
_backward_kv = _tuned(kernels.backward_kv, _BACKWARD_KV)


@torch.library.custom_op("attn_core::flash", mutates_args=())
def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The output, and for each row the base-2 logarithm of its sum of exponentials. An operator, for torch.compile."""
    q, k, v = (_with_rows(x) for x in (q, k, v))
    out, logsumexp = _outputs(q, k, v, mask, bias, causal, scale)
    strided = q, k, v, out
    with torch.cuda.device_of(q):
        programs = _programs(q, "BLOCK_T", q.shape[2], q.shape[1])
        _forward[programs](*strided, logsumexp, *_arguments(strided, mask, bias, causal, scale))
    return out, logsumexp


@torch.library.custom_op("attn_core::flash_backward", mutates_args=())
def _pull_back(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    grad, q, k, v, out = (_with_rows(x) for x in (grad, q, k, v, out))
    dq, dk, dv = (_heads_last(x, x.shape[3]) for x in (q, k, v))
    delta = torch.empty_like(logsumexp)
    with torch.cuda.device_of(q):
        strided = q, k, v, grad, out, dq
        programs = _programs(q, "BLOCK_T", q.shape[2], q.shape[1])
        _backward_q[programs](*strided, logsumexp, delta, *_arguments(strided, mask, bias, causal, scale))
        strided = q, k, v, grad, dk, dv
        programs = _programs(q, "BLOCK_S", k.shape[2], k.shape[1])
        _backward_kv[programs](*strided, logsumexp, delta, *_arguments(strided, mask, bias, causal, scale))
    return dq, dk, dv


@_attend.register_fake
def _outputs(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Any, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    return _heads_last(q, v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)


@_pull_back.register_fake
def _gradients(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _heads_last(q, q.shape[3]), _heads_last(k, k.shape[3]), _heads_last(v, v.shape[3])


@dataclass(frozen=True)
class _Kernels:
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    bias: Tensor | None
    causal: bool
    scale: float

    def forward(self) -> tuple[Tensor, Tensor]:
        return _attend(self.q, self.k, self.v, self.mask, self.bias, self.causal, self.scale)

    def backward(self, out: Tensor, logsumexp: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        given = self.q, self.k, self.v, self.mask, self.bias, out, logsumexp, self.causal, self.scale
        return _pull_back(grad, *given)


def _heads_last(x: Tensor, size: int) -> Tensor:
    """Room for ``(…, size)`` like ``x (B, H, T, …)``, in memory ``(B, T, H, size)``."""
    batch, heads, length = x.shape[:3]
    return x.new_empty(batch, length, heads, size).transpose(1, 2)


def _with_rows(x: Tensor) -> Tensor:
    return x if x.stride(3) == 1 else x.contiguous()


def _programs(q: Tensor, block: str, length: int, heads: int) -> Any:
    return lambda chosen: (triton.cdiv(length, chosen[block]) * heads * q.shape[0],)


def _arguments(
    strided: tuple[Tensor, ...], mask: Tensor | None, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Any, Any]:
    """``given`` and ``SHAPE``; the first three tensors are q, k and v."""
    q, k, v = strided[:3]
    shape = (*q.shape[:3], k.shape[2])
    limits: tuple[Any, ...] = ()
    for x in (mask, bias):
        limits += (None, None) if x is None else (x, x.broadcast_to(shape).stride())  # 0 along axes of one entry
    sizes: tuple[int, ...] = ()
    for size in (q.shape[3], v.shape[3]):
        sizes += size, max(16, triton.next_power_of_2(size))
    strides = tuple(x.stride() for x in strided)
    return (limits, shape[1:], scale * kernels.LOG2_E.value, strides), (shape[1] // k.shape[1], causal, *sizes)
