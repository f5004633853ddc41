"""Attention, explained and fast: the package behind the book.

The attention contract, stated once
-----------------------------------
Axis letters, used everywhere: **B** batch, **T** query length, **S** key length, **H** heads, **G** key-value
heads, **D** head size (values may have their own, **Dv**), **C** model size, **V** vocabulary.

A *mechanism* is a callable ``(q, k, v, *, mask=None, bias=None, causal=False, scale=None) -> out`` on

===========  ====================  =========================================================================
``q``        ``(B, H, T, D)``      queries
``k``        ``(B, G, S, D)``      keys; G divides H, and query head ``h`` reads key head ``h // (H // G)``
``v``        ``(B, G, S, Dv)``     values
``mask``     to ``(B, H, T, S)``   boolean, broadcastable; **True means: may attend**
``bias``     to ``(B, H, T, S)``   floating, broadcastable; added to the scaled scores
``causal``   bool                  query i of T sees keys up to S − T + i (aligned bottom-right), ANDed with mask
``scale``    float                 multiplies the products; default 1/√D
``out``      ``(B, H, T, Dv)``     dtype of ``q``
===========  ====================  =========================================================================

- A query with nothing to attend to gets **zeros** and passes back zero gradient: never NaN, never uniform weights.
- In half precision, softmax and sums run in float32. No input is ever changed.
- Keys and values are finite numbers, also where a mask hides them, because zero times infinity is NaN; and so is the
  sum of the values over all keys, in float32.
- A return type never depends on a flag: ``attention`` gives the output, ``attention_with_weights`` the pair.
- What a mechanism cannot do it refuses with a ``ValueError`` that names the argument, what was expected, what came.
"""

from attn_core.cache import KVCache
from attn_core.capture import capture_attention
from attn_core.delta_net import GatedDeltaNet
from attn_core.device import default_device
from attn_core.latent import LatentAttention
from attn_core.longformer import LongformerAttention
from attn_core.mechanisms.additive import AdditiveAttention
from attn_core.mechanisms.block_selection import BlockSelection
from attn_core.mechanisms.dense import Dense, attend, attention, attention_with_weights
from attn_core.mechanisms.flash import FlashAttention, flash_attention
from attn_core.mechanisms.linear import LinearAttention, linear_attention
from attn_core.mechanisms.linformer import Linformer
from attn_core.mechanisms.lsh import LSHAttention
from attn_core.mechanisms.online import OnlineSoftmax
from attn_core.mechanisms.performer import Performer
from attn_core.mechanisms.sink import SinkAttention
from attn_core.mechanisms.window import SlidingWindow
from attn_core.multi_head import MultiHeadAttention

__version__ = "1.0.0"

__all__ = [
    "AdditiveAttention",
    "BlockSelection",
    "Dense",
    "FlashAttention",
    "GatedDeltaNet",
    "KVCache",
    "LSHAttention",
    "LatentAttention",
    "LinearAttention",
    "Linformer",
    "LongformerAttention",
    "MultiHeadAttention",
    "OnlineSoftmax",
    "Performer",
    "SinkAttention",
    "SlidingWindow",
    "attend",
    "attention",
    "attention_with_weights",
    "capture_attention",
    "default_device",
    "flash_attention",
    "linear_attention",
]
