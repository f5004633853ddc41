"""A stack read flat: the operators of its layers one after the other, with no call of a module around each."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from attn_core.cache import Cache, KVCache, rollback_on_error
from attn_core.capture import is_captured
from attn_core.contract import accum_dtype, traced
from attn_core.mechanisms.dense import is_plain_softmax
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Rotary, following, turned
from attn_core.projections import is_plain_linear, split_heads
from attn_core.transformer.feed_forward import FeedForward, SwiGLU
from attn_core.transformer.layers import AddNorm, EncoderLayer
from attn_core.transformer.stacks import EncoderStack


def flat(stack: nn.Module) -> Callable[..., Tensor]:
    """What reads tokens into caches as ``stack`` does, with less between its operators; or ``stack`` itself.

    With one token, most operators take microseconds, and as much again goes by around them. A stack stays as it is
    unless its layers are pre-norm, with plain linear layers around ``MultiHeadAttention`` without gate or norms of its
    queries and keys, and with ``Rotary`` or no positions inside the scores. In training mode, or with hooks, the
    modules are called after all. The parameters are those of now: others put in their place are not seen.
    """
    modules = list(stack.modules())
    layers: list[Any] = [_flat_layer(x) for x in stack.layers] if type(stack) is EncoderStack else [None]
    if None in layers or any("forward" in vars(module) for module in modules):
        return stack
    rotary = {module for module in modules if isinstance(module, Rotary)}

    def read(x: Tensor, *, caches: Sequence[Cache], lengths: Tensor | None, causal: bool) -> Tensor:
        hooked = any(module.training or module._forward_hooks or module._forward_pre_hooks for module in modules)
        if hooked or traced() or x.device.type == "mps":
            return stack(x, caches=caches, lengths=lengths, causal=causal)
        positions = following(caches[0].before, x)
        turns = {each: each.turns(positions, accum_dtype(x)) for each in rotary}  # once for all layers
        with rollback_on_error(caches):
            for layer, cache in zip(layers, caches, strict=True):
                x = layer(x, cache, turns, lengths)
        return stack.norm(x)  # type: ignore[operator]

    return read


def _flat_layer(layer: Any) -> Any:
    """What a layer does with its next tokens; None if it is not as ``flat`` says."""
    if (type(layer), type(getattr(layer, "attention", None))) != (EncoderLayer, MultiHeadAttention):
        return None
    attention, network, parts = layer.attention, layer.feed_forward, (layer.add_attention, layer.add_feed_forward)
    if type(network) not in (FeedForward, SwiGLU) or any(type(x) is not AddNorm or not x.norm_first for x in parts):
        return None
    linears = [attention.query, attention.key, attention.value, attention.out, network.hidden, network.out]
    linears += [] if network.gate is None else [network.gate]
    other = attention.gate or attention.query_norm or attention.key is attention.query
    if other or not is_plain_linear(*linears) or type(attention.positions) not in (Rotary, type(None)):
        return None
    query, key, value, out, hidden, last, *gate = [(x.weight, x.bias) for x in linears]
    norm, next_norm = (_flat_norm(part.norm) for part in parts)
    positions, size, activation = attention.positions, attention.head_dim, network.activation
    plain = is_plain_softmax(attention.mechanism)

    def read(x: Tensor, cache: Cache, turns: dict[Any, Tensor], lengths: Tensor | None) -> Tensor:
        y = norm(x)
        q, k, v = (split_heads(linear(y, *weights), size) for weights in (query, key, value))
        if positions is not None:
            q, k = turned(q, turns[positions]), turned(k, turns[positions])
        one = plain and x.shape[1] == 1 and lengths is None and not is_captured(attention)
        if one and type(cache) is KVCache and cache.uniform:
            k, v = cache.extend(k, v)
            q = q.reshape(len(x), k.shape[1], -1, size)  # the heads that share keys, as queries of one head
            attended = scaled_dot_product_attention(q, k, v).reshape(len(x), 1, -1)
        else:
            attended = cache.attend(attention, q, k, v, lengths=lengths).transpose(1, 2).flatten(2)
        x = x + linear(attended, *out)
        y = next_norm(x)
        inner = activation(linear(y, *gate[0])) * linear(y, *hidden) if gate else activation(linear(y, *hidden))
        return x + linear(inner, *last)

    return read


def _flat_norm(norm: Any) -> Any:
    """The norm itself, or, where PyTorch makes an RMS norm of seven operators, as on a CPU, one of five."""
    plain = type(norm) is nn.RMSNorm and len(norm.normalized_shape) == 1 and None not in (norm.weight, norm.eps)
    if not plain or norm.weight.device.type != "cpu":
        return norm
    weight, root, least = norm.weight, norm.weight.numel() ** -0.5, torch.tensor(norm.eps, dtype=torch.double).sqrt()

    def read(x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=accum_dtype(x))
        return (x / torch.hypot(length * root, least) * weight).to(x.dtype)

    return read
