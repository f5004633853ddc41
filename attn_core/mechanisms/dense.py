"""Softmax attention over every key: the explicit form first, PyTorch's fused kernels below it."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.contract import (
    Call,
    Mechanism,
    check_dropout,
    check_mask,
    check_soft_cap,
    contract,
    four_axes,
    kind,
    transformed,
    without_autocast,
)


def attention_with_weights(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention, step by step: the output and the attention weights ``(B, H, T, S)``.

    Shapes and errors: the contract's (``attn_core.__doc__``). Takes memory for several tensors like the weights.

    Source: Vaswani et al. 2017, eq. 1.
    """
    return weigh(contract(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale))


def weigh(call: Call, soft_cap: float | None = None) -> tuple[Tensor, Tensor]:
    """``attention_with_weights`` of a checked call."""
    with without_autocast(call.q):
        q, k, v = call.repeat_kv()
        scores = (q * call.scale) @ k.mT
        if soft_cap is not None:
            scores = soft_capped(scores, soft_cap)
        if call.bias is not None:
            scores = scores + call.bias
        out, weights = attend(scores, v, call.visible)
    return out.to(call.q.dtype), weights.to(call.q.dtype)


def soft_capped(x: Tensor, soft_cap: float) -> Tensor:
    """c · tanh(x / c) of every entry: near x where it is small beside c, never beyond c.

    Source: Gemma Team 2024, section 2.
    """
    return soft_cap * torch.tanh(x / soft_cap)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last axis, among the positions where ``mask`` is True.

    Shapes: ``scores (…, T, S)`` floating, −inf allowed; ``mask`` boolean, broadcastable to it. Returns weights of the
    same shape and dtype. A row with nothing to attend to is all zeros and passes back zero gradient.

    Source: Vaswani et al. 2017, section 3.2.3 (masking by −inf).
    """
    return _softmax(scores, mask)[0]


def attend(scores: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Turn scores into attention weights, as ``masked_softmax`` does, and take the weighted mean of the values.

    Shapes: ``scores (…, T, S)``, ``v (…, S, Dv)``, ``mask`` broadcastable to the scores, True where a query may
    attend. Returns ``out (…, T, Dv)`` and ``weights (…, T, S)``.

    Source: Bahdanau et al. 2015, eq. 5 and 6.
    """
    weights, empty = _softmax(scores, mask)
    keys = scores.shape[-1]
    if not isinstance(v, Tensor) or not v.dtype.is_floating_point or v.dim() < 2 or v.shape[-2] != keys:
        raise ValueError(f"v: expected a floating tensor of shape (…, {keys}, Dv), one row a score, got {kind(v)}")
    # Zero times a value that is NaN or infinite is NaN, so empty rows are set to zero afterwards.
    return (weights.to(v.dtype) @ v).masked_fill(empty, 0.0), weights


def _softmax(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The weights, and which rows are empty."""
    if not isinstance(scores, Tensor) or not scores.dtype.is_floating_point or scores.dim() == 0:
        raise ValueError(f"scores: expected a floating tensor (…, T, S), got {kind(scores)}")
    if mask is not None:
        check_mask(mask, tuple(scores.shape), scores.device)
        scores = scores.masked_fill(~mask, -math.inf)
    # −inf − (−inf) is NaN, so an empty row has finite scores before the softmax, and zero weights after it.
    empty = torch.isneginf(scores).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0), empty


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention through PyTorch's fused kernels: ``attention_with_weights(...)[0]``, to rounding.

    The ``(B, H, T, S)`` weights are built only for a bias that requires a gradient, under ``torch.func`` and in
    forward-mode differentiation. Fused kernels have no second derivative on a CPU: asking for one is a
    ``RuntimeError``. On a GPU, a bias is rounded to the dtype of q, after the largest of its row has been subtracted. A
    mask together with ``causal`` is built for all pairs; ``flash_attention`` reads both tile by tile.

    Source: Vaswani et al. 2017, eq. 1; Dao et al. 2022 (the fused kernel).
    """
    call = contract(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)
    return _fused(call, dropout=0.0) if _has_kernel(call) else weigh(call)[0]


class Dense(Mechanism):
    """Softmax attention as a module, with dropout on the attention weights while training.

    ``soft_cap`` c replaces each scaled product x of a query and a key by c · tanh(x / c), before any bias. No fused
    kernel has a soft cap, and none has dropout on a CPU, so these keep the ``(B, H, T, S)`` weights.

    Source: Vaswani et al. 2017, eq. 1; dropout on the weights follows the authors' published code; Gemma Team 2024,
    section 2 (soft cap).
    """

    def __init__(self, *, dropout: float = 0.0, soft_cap: float | None = None) -> None:
        super().__init__()
        check_dropout(dropout)
        check_soft_cap(soft_cap)
        self.dropout, self.soft_cap = dropout, soft_cap

    def attend(self, call: Call) -> Tensor:
        """``attention`` with this module's dropout and soft cap."""
        if self.soft_cap is not None or not _has_kernel(call):
            return self.attend_with_weights(call)[0]
        return _fused(call, dropout=self.dropout if self.training else 0.0)

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """``attention_with_weights`` with this module's dropout; the weights returned are those before dropout."""
        out, weights = weigh(call, self.soft_cap)
        if self.training and self.dropout > 0:
            with without_autocast(call.q):
                _, _, v = call.repeat_kv()
                out = functional.dropout(weights.to(v.dtype), self.dropout) @ v
            out = out.masked_fill(~weights.any(-1, keepdim=True), 0.0).to(call.q.dtype)
        return out, weights


def is_plain_softmax(mechanism: object) -> bool:
    """Whether ``mechanism`` is softmax attention over every key and nothing more, as ``paged_attention`` is."""
    return mechanism.soft_cap is None if type(mechanism) is Dense else mechanism is attention


def _has_kernel(call: Call) -> bool:
    """Whether PyTorch's fused kernels take this call; otherwise ``weigh`` does."""
    if call.k.shape[2] == 0 or call.q.numel() == 0 or call.v.shape[3] == 0:
        return False  # the explicit path's products over empty axes are the zeros of the contract
    return not transformed(*call[:5])


def _fused(call: Call, dropout: float) -> Tensor:
    q, k, v, mask, bias, causal, _ = call
    queries, keys, value_size = q.shape[2], k.shape[2], v.shape[3]
    causal = causal and queries > 1  # the last query sees every key
    # PyTorch's causal mask is aligned top-left, as ours is only with as many keys as queries, and it stands alone.
    # (``all`` gives True or False also where sizes are traced, which comparisons do not.)
    plain_causal = all((causal, mask is None, bias is None, queries == keys))
    visible = call._replace(causal=causal and not plain_causal).visible
    extra, empty = _merge(visible, bias, q.dtype)
    group = q.shape[1] // k.shape[1]
    if group > 1 and queries == 1:
        # As queries of one key head, the heads that share it read each key once; a kernel would read it for each head.
        q = q.reshape(q.shape[0], k.shape[1], group, q.shape[3])
        if extra is not None and extra.shape[1] > 1:
            extra = extra.unflatten(1, (-1, group)).squeeze(3)
    # Fused kernels want one head size, its entries contiguous. Zeros beside the smaller side change no product.
    # (The questions come first because a call of one token takes microseconds.)
    if q.shape[3] != value_size:
        width = max(q.shape[3], value_size)
        q, k, v = (functional.pad(x, (0, width - x.shape[3])) if x.shape[3] < width else x for x in (q, k, v))
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    out = functional.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=extra,
        dropout_p=dropout,
        is_causal=plain_causal,
        scale=call.scale,
        enable_gqa=all((group > 1, queries > 1)),
    )
    if out.shape[3] != value_size:
        out = out[..., :value_size]
    if group > 1 and queries == 1:
        out = out.reshape(out.shape[0], -1, 1, value_size)
    if out.dtype != call.q.dtype:  # under autocast the kernel gives half precision
        out = out.to(call.q.dtype)
    return out if empty is None else out.masked_fill(empty, 0.0)


def _merge(mask: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """One tensor of four axes for PyTorch's kernels, and which rows are empty: these see every key, and become zero."""
    if bias is None:
        if mask is None:
            return None, None
        mask = four_axes(mask)
        empty = ~mask.any(-1, keepdim=True)
        return mask | empty, empty
    merged = four_axes(bias).to(torch.promote_types(bias.dtype, dtype))
    if mask is not None:
        merged = merged.masked_fill(~mask, -math.inf)
    empty = torch.isneginf(merged).all(-1, keepdim=True)
    merged = merged.masked_fill(empty, 0.0)
    # On a CPU the kernels take a bias in float32 beside half precision; elsewhere they want the dtype of q. What is
    # added to a whole row changes nothing, so half precision is left to round differences from the row's largest bias.
    kept = torch.promote_types(dtype, torch.float32) if merged.device.type == "cpu" else dtype
    return (merged - merged.detach().amax(-1, keepdim=True)).to(kept), empty
