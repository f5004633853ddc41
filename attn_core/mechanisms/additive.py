"""Softmax attention over additive scores, as a mechanism."""

import math

from torch import Tensor

from attn_core.contract import Call, Mechanism, accum_dtype, check_integer, without_autocast
from attn_core.mechanisms.dense import attend
from attn_core.scores import Additive


class AdditiveAttention(Mechanism):
    """Attention that scores with the perceptron v·tanh(W q + U k), the same one for every head.

    It builds a tensor ``(B, H, T, S, hidden_dim)``, and takes no ``scale``, because the parameters bound the scores.

    Source: Bahdanau et al. 2015, appendix A.1.2 (the score); Vaswani et al. 2017, section 3.2.2 (heads).
    """

    def __init__(self, head_dim: int, hidden_dim: int) -> None:
        super().__init__()
        check_integer("head_dim", head_dim)
        self.score = Additive(head_dim, head_dim, hidden_dim)

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """The output ``(B, H, T, Dv)`` and the attention weights ``(B, H, T, S)``."""
        q, k = call.q, call.k
        if call.scale != 1 / math.sqrt(q.shape[3]):
            raise ValueError(f"scale: expected None, since additive scores are not scaled, got {call.scale}")
        keys = self.score.project_keys(k)  # once for each key-value head, before heads are repeated
        scores = self.score.score(q, keys.repeat_interleave(q.shape[1] // k.shape[1], dim=1))
        scores = scores.to(accum_dtype(scores))
        if call.bias is not None:
            scores = scores + call.bias
        with without_autocast(q):
            out, weights = attend(scores, call.repeat_kv()[2], call.visible)
        return out.to(q.dtype), weights.to(q.dtype)
