"""Softmax attention over additive scores, as a mechanism."""

import torch
from torch import Tensor, nn

from attn_core import masks
from attn_core.contract import check_inputs
from attn_core.mechanisms.dense import attend
from attn_core.scores import Additive


class AdditiveAttention(nn.Module):
    """Attention that scores by the perceptron v·tanh(W q + U k), the same one for every head.

    Called as the contract says: ``(q, k, v, *, mask, bias, causal, scale) -> out``. The heads differ in their
    projections, which stand before a mechanism. It builds a tensor ``(B, H, T, S, hidden_dim)``, and belongs to one
    layer, because it learns.

    Raises:
        ValueError: a size below 1; in use, an argument that breaks the contract, a head size, dtype or device that is
            not the weights', or a ``scale``: additive scores are bounded by their own weights and are not scaled.

    Source: Bahdanau et al. 2015, appendix A.1.2 (the score); Vaswani et al. 2017, section 3.2.2 (heads).
    """

    def __init__(self, head_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.score = Additive(head_dim, head_dim, hidden_dim)

    def with_weights(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The output ``(B, H, T, Dv)`` and the weights ``(B, H, T, S)``."""
        check_inputs(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)
        if scale is not None:
            raise ValueError(f"scale: expected None, since additive scores are not scaled, got {scale}")
        group = q.shape[1] // k.shape[1]
        prepared = self.score.project_keys(k)  # before the heads are repeated: once for each key-value head
        prepared, v = (x.repeat_interleave(group, dim=1) if group > 1 else x for x in (prepared, v))
        scores = self.score.score(q, prepared)
        wide = torch.promote_types(scores.dtype, torch.float32)
        scores = scores.to(wide)
        if bias is not None:
            scores = scores + bias
        if causal:
            future = masks.causal(q.shape[2], k.shape[2], device=q.device)
            mask = future if mask is None else mask & future
        with torch.autocast(q.device.type, enabled=False):
            out, weights = attend(scores, v.to(wide), mask)
        return out.to(q.dtype), weights.to(q.dtype)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        """The output alone."""
        return self.with_weights(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)[0]
