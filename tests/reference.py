"""Attention in float64, written as loops: slow, plain, and what everything else is held against."""

import math

import torch
from torch import Tensor


def attention(q, k, v, *, mask=None, bias=None, causal=False, scale=None) -> tuple[Tensor, Tensor]:
    """The contract of ``attn_core``, query by query: output ``(B, H, T, Dv)`` and weights ``(B, H, T, S)``."""
    q, k, v = (x.detach().double() for x in (q, k, v))
    batch, heads, queries, size = q.shape
    group, keys = heads // k.shape[1], k.shape[2]
    shape = (batch, heads, queries, keys)
    allowed = torch.ones(shape, dtype=torch.bool) if mask is None else mask.broadcast_to(shape)
    extra = torch.zeros(shape, dtype=torch.float64) if bias is None else bias.detach().double().broadcast_to(shape)
    factor = 1 / math.sqrt(size) if scale is None else scale
    out = torch.zeros(batch, heads, queries, v.shape[-1], dtype=torch.float64)
    weights = torch.zeros(shape, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                seen = [
                    j
                    for j in range(keys)
                    if allowed[b, h, i, j]
                    and (not causal or j <= i + keys - queries)
                    and extra[b, h, i, j] != -math.inf
                ]
                if not seen:
                    continue
                scores = [
                    factor * float((q[b, h, i] * k[b, h // group, j]).sum()) + float(extra[b, h, i, j]) for j in seen
                ]
                top = max(scores)
                raised = [math.exp(score - top) for score in scores]
                for j, one in zip(seen, raised, strict=True):
                    weights[b, h, i, j] = one / sum(raised)
                    out[b, h, i] += weights[b, h, i, j] * v[b, h // group, j]
    return out, weights


def tolerance(dtype: torch.dtype, *, scale: float = 1.0) -> float:
    """How far attention in ``dtype`` may be from float64, for inputs of standard deviation ``scale``.

    The error of a score grows with its size, the square of the inputs' scale.
    """
    unit = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    return unit * max(1.0, scale) ** 2
