"""Feed-forward networks: what a layer does at each position by itself."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import check_dropout, check_integer
from attn_core.projections import initialise


class FeedForward(nn.Module):
    """Two linear layers with ``activation`` between them: ``(…, C)`` to ``(…, C)``.

    If it is ``gated``, there is a third layer, and the result is ``out(activation(gate(x)) · hidden(x))``.

    Source: Vaswani et al. 2017, eq. 2; Hendrycks and Gimpel 2016 (GELU, ``functional.gelu``); Shazeer 2020 (gates).
    """

    def __init__(
        self,
        model_dim: int,
        hidden_dim: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] = torch.relu,
        gated: bool = False,
    ) -> None:
        super().__init__()
        check_integer("model_dim", model_dim)
        check_integer("hidden_dim", hidden_dim)
        check_dropout(dropout)
        self.gate = nn.Linear(model_dim, hidden_dim, bias=bias) if gated else None
        self.hidden = nn.Linear(model_dim, hidden_dim, bias=bias)
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden_dim, model_dim, bias=bias)
        initialise(*([] if self.gate is None else [self.gate]), self.hidden, self.out)

    def forward(self, x: Tensor) -> Tensor:
        """Each vector of ``x (…, C)`` on its own: the same shape."""
        if self.gate is None:
            hidden = self.activation(self.hidden(x))
        else:
            hidden = self.activation(self.gate(x)) * self.hidden(x)
        return self.out(self.dropout(hidden) if self.dropout.training else hidden)


class SwiGLU(FeedForward):
    """``FeedForward`` with SiLU and gates; with two thirds of the hidden size it has as many parameters.

    Source: Shazeer 2020, eq. 6.
    """

    def __init__(self, model_dim: int, hidden_dim: int, *, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__(model_dim, hidden_dim, dropout=dropout, bias=bias, activation=functional.silu, gated=True)
