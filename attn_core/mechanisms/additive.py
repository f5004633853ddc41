"""Softmax attention over additive scores, as a mechanism."""

from torch import Tensor, nn

from attn_core.contract import accum_dtype, contract, without_autocast
from attn_core.mechanisms.dense import attend
from attn_core.scores import Additive


class AdditiveAttention(nn.Module):
    """Attention that scores with the perceptron v·tanh(W q + U k), the same one for every head.

    Called as the contract says: ``(q, k, v, *, mask, bias, causal, scale) -> out``. The heads differ in the projections
    before the mechanism. It builds a tensor ``(B, H, T, S, hidden_dim)``, and it belongs to one layer because it has
    parameters.

    Raises:
        ValueError: if a size is below 1; in use, if an argument breaks the contract, the head size, dtype or device is
            not that of the parameters, or a ``scale`` is given: additive scores are bounded by their parameters and
            are not scaled.

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
        """The output ``(B, H, T, Dv)`` and the attention weights ``(B, H, T, S)``."""
        call = contract(q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)
        if scale is not None:
            raise ValueError(f"scale: expected None, since additive scores are not scaled, got {scale}")
        keys = self.score.project_keys(k)  # before the heads are repeated: once for each key-value head
        scores = self.score.score(q, keys.repeat_interleave(q.shape[1] // k.shape[1], dim=1))
        scores = scores.to(accum_dtype(scores))
        if bias is not None:
            scores = scores + bias
        with without_autocast(q):
            out, weights = attend(scores, call.repeat_kv()[2], call.visible)
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
