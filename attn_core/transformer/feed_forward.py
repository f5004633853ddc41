"""Feed-forward networks: what a layer does at each position by itself."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import check_dropout, check_integer
from attn_core.projections import initialise


class FeedForward(nn.Module):
    """Two linear layers with ``activation`` between them, ReLU by default: ``(…, C)`` to ``(…, C)``.

    Raises:
        ValueError: if a size is below 1 or ``dropout`` lies outside [0, 1).

    Source: Vaswani et al. 2017, eq. 2; Hendrycks and Gimpel 2016 (GELU, ``functional.gelu``).
    """

    def __init__(
        self,
        model_dim: int,
        hidden_dim: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        _check(model_dim, hidden_dim, dropout)
        self.hidden = nn.Linear(model_dim, hidden_dim, bias=bias)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden_dim, model_dim, bias=bias)
        initialise(self.hidden, self.out)

    def forward(self, x: Tensor) -> Tensor:
        """Each vector of ``x (…, C)`` on its own: the same shape."""
        hidden = self.activation(self.hidden(x))
        return self.out(self.dropout(hidden) if self.dropout.training else hidden)


class SwiGLU(nn.Module):
    """A feed-forward network whose hidden values are multiplied by gates: ``out(silu(gate(x)) · hidden(x))``.

    It has three matrices where ``FeedForward`` has two. With two thirds of the hidden size both have as many
    parameters.

    Raises:
        ValueError: as ``FeedForward``.

    Source: Shazeer 2020, eq. 6.
    """

    def __init__(self, model_dim: int, hidden_dim: int, *, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        _check(model_dim, hidden_dim, dropout)
        self.gate = nn.Linear(model_dim, hidden_dim, bias=bias)
        self.hidden = nn.Linear(model_dim, hidden_dim, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden_dim, model_dim, bias=bias)
        initialise(self.gate, self.hidden, self.out)

    def forward(self, x: Tensor) -> Tensor:
        """Each vector of ``x (…, C)`` on its own: the same shape."""
        hidden = functional.silu(self.gate(x)) * self.hidden(x)
        return self.out(self.dropout(hidden) if self.dropout.training else hidden)


def _check(model_dim: int, hidden_dim: int, dropout: float) -> None:
    check_integer("model_dim", model_dim)
    check_integer("hidden_dim", hidden_dim)
    check_dropout(dropout)
