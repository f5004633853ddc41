"""Self-attention whose queries and keys are blended with a context; the values stay as they are."""

import torch
from torch import Tensor, nn

from attn_core.capture import is_captured, record
from attn_core.contract import check_integer, settings
from attn_core.mechanisms.dense import attention, attention_with_weights
from attn_core.projections import check_vectors, head_size, initialise


def blend(x: Tensor, context: Tensor, weight: Tensor) -> Tensor:
    """``(1 − weight) · x + weight · context``: at weight 0 exactly ``x``, at 1 exactly ``context``, if both are finite.

    Shapes: ``x (B, T, C)``, ``context (B, T or 1, C)``, ``weight (B, T, 1)``, between 0 and 1; returns ``(B, T, C)``.

    Source: Yang et al. 2019 (Context-Aware Self-Attention Networks), the equation of Q̂ and K̂.
    """
    return (1 - weight) * x + weight * context


class ContextAttention(nn.Module):
    """Multi-head self-attention whose queries and keys depend on a context.

    With Q, K and V of the input, and the context C of ``context_dim`` entries a position, or one for all positions::

        Q̂ = (1 − λ_Q) Q + λ_Q (C U_Q),    λ_Q = σ([Q, C U_Q] V_Q + b_Q),    K̂ and λ_K likewise,

    one number λ at each position for all heads; the output is attention with Q̂, K̂ and V. If both ``b`` are −∞, the
    weights λ are 0, and the layer equals ``MultiHeadAttention`` with the same ``query``, ``key``, ``value`` and
    ``out``. The biases ``b`` are ours (the paper has none): they start at 0, so the context starts with about half of
    the weight.

    A context computed from the whole sequence contains later positions: ``causal`` hides only keys and values.

    Raises:
        ValueError: if a size is below 1, or ``num_heads`` does not divide ``model_dim``.

    Source: Yang et al. 2019 (Context-Aware Self-Attention Networks), section "Context-Aware Self-Attention Model".
    """

    def __init__(self, model_dim: int, num_heads: int, *, context_dim: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.context_dim = num_heads, head_size(model_dim, num_heads), context_dim
        check_integer("context_dim", context_dim)
        self.query, self.key, self.value, self.out = (nn.Linear(model_dim, model_dim) for _ in range(4))
        self.query_context, self.key_context = (nn.Linear(context_dim, model_dim, bias=False) for _ in range(2))
        self.query_gate, self.key_gate = (nn.Linear(2 * model_dim, 1) for _ in range(2))
        initialise(*(layer for layer in self.children() if isinstance(layer, nn.Linear)))

    extra_repr = settings

    def forward(self, x: Tensor, context: Tensor, *, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Attend from each position of ``x`` to all positions, given ``context``.

        Shapes: ``x (B, T, model_dim)``; ``context (B, T, context_dim)``, or ``(B, 1, context_dim)`` where all positions
        share it; ``mask`` (True = may attend) broadcasts to ``(B, H, T, T)``. Returns ``(B, T, model_dim)``.

        Raises:
            ValueError: if an input has another size or kind, or a mask does not broadcast.
        """
        self._check(x, context)
        queries = self._blended(self.query(x), self.query_context(context), self.query_gate)
        keys = self._blended(self.key(x), self.key_context(context), self.key_gate)
        q, k, v = (self._split(each) for each in (queries, keys, self.value(x)))
        if is_captured(self):
            out, weights = attention_with_weights(q, k, v, mask=mask, causal=causal)
            record(self, weights)
        else:
            out = attention(q, k, v, mask=mask, causal=causal)
        return self.out(out.transpose(1, 2).flatten(2))

    @staticmethod
    def _blended(own: Tensor, given: Tensor, gate: nn.Module) -> Tensor:
        return blend(own, given, torch.sigmoid(gate(torch.cat((own, given.expand_as(own)), -1))))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _check(self, x: Tensor, context: Tensor) -> None:
        check_vectors("x", x, self.num_heads * self.head_dim, self.query)
        check_vectors("context", context, self.context_dim, self.query_context)
        batch, length = x.shape[:2]
        if context.shape[0] != batch or context.shape[1] not in (1, length):
            shape = f"({batch}, {length} or 1, {self.context_dim}), to go with x"
            raise ValueError(f"context: expected shape {shape}, got {tuple(context.shape)}")
