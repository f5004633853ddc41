"""Attention in linear time: keys and values are first shortened, by a learned projection along the length."""

import math

import torch
from torch import Tensor, nn

from attn_core.contract import Call, Mechanism, accum_dtype, check_integer, four_axes, without_autocast
from attn_core.mechanisms.dense import attention


class Linformer(Mechanism):
    """Softmax attention over ``slots`` learned mixtures of the keys, and the same number of the values.

    Takes up to ``max_length`` keys; fewer use the first columns of the projections. A mask hides the same keys from all
    heads and queries (``masks.padding``): they are set to zero before they are mixed. Linformer takes no bias, and is
    never causal, because each mixture contains all keys.

    All heads share the projections E and F, ``(1, slots, max_length)``. They start with variance 1 / ``max_length``, so
    that mixtures of independent keys are as large as the keys. To share them among layers as well, give the same module
    to each: ``shared = Linformer(512)``, then ``mechanism=lambda: shared``.

    Source: Wang et al. 2020, eq. 7, and section 4 (what is shared).
    """

    def __init__(self, max_length: int, slots: int = 256) -> None:
        super().__init__()
        check_integer("max_length", max_length)
        check_integer("slots", slots)
        shape = (1, slots, max_length)
        self.key_projection = nn.Parameter(torch.randn(shape) / math.sqrt(max_length))
        self.value_projection = nn.Parameter(torch.randn(shape) / math.sqrt(max_length))

    def attend(self, call: Call) -> Tensor:
        """``softmax(q (E k)ᵀ · scale) (F v)``; where the mask hides all keys of a row, the output is zeros."""
        keys, max_length = call.k.shape[2], self.key_projection.shape[2]
        if keys > max_length:
            raise ValueError(f"k: expected at most {max_length} keys, as the projections', got {keys}")
        if call.causal:
            raise ValueError("causal: expected False, since each slot mixes all keys, got True")
        call.refuse_pairs()
        k, v = call.k, call.v
        if call.mask is not None:
            hidden = ~four_axes(call.mask).mT
            k, v = k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
        k, v = shorten(self.key_projection, k), shorten(self.value_projection, v)
        return attention(call.q, k, v, scale=call.scale)


def shorten(projection: Tensor, x: Tensor) -> Tensor:
    """Mix the positions of ``x (B, G, S, D)`` into slots: ``(B, G, slots, D)``, summed in float32 at least.

    Of the columns of ``projection (1, slots, n)``, the first S are used.
    """
    dtype = accum_dtype(x)
    with without_autocast(x):
        return (projection[..., : x.shape[2]].to(dtype) @ x.to(dtype)).to(x.dtype)
