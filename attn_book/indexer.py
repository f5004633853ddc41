"""DeepSeek's lightning indexer: a small second attention that ranks the keys for a large one."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import check_integer, kind
from attn_core.positions import Rotary


class LightningIndexer(nn.Module):
    """Scores of all pairs of tokens: ``(B, n, C)`` to ``(B, n, n)``, −∞ for keys after their query.

    ``num_heads`` heads of ``head_dim`` entries, half of them rotated by position, share one key:
    ``I[t, s] = Σ_j w[t, j] · ReLU(q[t, j] · k[s])``. Only the order of a row counts.

    Raises:
        ValueError: if a size is not a positive integer, or ``head_dim`` not a multiple of four.

    Source: DeepSeek-AI 2025 (DeepSeek-V3.2), eq. 1.
    """

    def __init__(self, model_dim: int, *, num_heads: int = 4, head_dim: int = 16) -> None:
        super().__init__()
        for name, size in {"model_dim": model_dim, "num_heads": num_heads, "head_dim": head_dim}.items():
            check_integer(name, size)
        if head_dim % 4:
            raise ValueError(f"head_dim: expected a multiple of 4, got {head_dim}")
        self.num_heads = num_heads
        self.query = nn.Linear(model_dim, num_heads * head_dim, bias=False)
        self.key = nn.Linear(model_dim, head_dim, bias=False)
        self.weight = nn.Linear(model_dim, num_heads, bias=False)
        self.positions = Rotary(head_dim, rotary_dim=head_dim // 2)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of what an attention layer reads, ``x (B, n, C)``."""
        if not isinstance(x, Tensor) or x.dim() != 3:
            raise ValueError(f"x: expected a tensor (B, n, C), got {kind(x)}")
        places = torch.arange(x.shape[1], device=x.device)
        queries = self.positions.rotate(self.query(x).unflatten(2, (self.num_heads, -1)).transpose(1, 2), places)
        keys = self.positions.rotate(self.key(x)[:, None], places)
        scores = (self.weight(x).mT[..., None] * (queries @ keys.mT).relu()).sum(1)
        return scores.masked_fill(places > places[:, None], -math.inf)


def imitation_loss(scores: Tensor, weights: Tensor) -> Tensor:
    """The KL divergence from the softmax of ``scores (B, n, n)`` to ``weights (B, n, n)``, the mean over the queries.

    The weights are those of full attention, summed over the heads and divided by their number.

    Source: DeepSeek-AI 2025 (DeepSeek-V3.2), eq. 3.
    """
    # A masked key has −∞, which times a weight of 0 would be no number.
    logs = scores.log_softmax(-1).clamp(min=-1e4)
    return functional.kl_div(logs, weights, reduction="sum") / weights.shape[:-1].numel()


def recall(scores: Tensor, weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """How good the ``count`` best keys of each query are, ``(…, n)`` each, for queries with at least ``count`` keys.

    The first tensor is the share of the ``count`` keys with the largest weights that are among them; the second is the
    sum of the weights of the chosen keys.

    Raises:
        ValueError: if ``count`` is not between 1 and the number of keys.
    """
    check_integer("count", count, at_most=weights.shape[-1])
    chosen, true = scores.topk(count).indices, weights.topk(count).indices
    found = (chosen[..., :, None] == true[..., None, :]).any(-1).float().mean(-1)
    return found, weights.gather(-1, chosen).sum(-1)
