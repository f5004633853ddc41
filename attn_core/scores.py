"""Scoring functions: how well does a query fit a key?

Each is a module with two steps, so that keys which serve many queries are worked on once:
``score(queries, prepare(keys))`` with queries ``(…, T, Dq)``, keys ``(…, S, Dk)`` and scores ``(…, T, S)``.
Calling the module does both steps.
"""

import math

import torch
from torch import Tensor, nn

from attn_core.contract import check_size


class Dot(nn.Module):
    """The dot product, q·k: the two sizes must be equal, and nothing is learned.

    Source: Luong et al. 2015, section 3.1, "dot".
    """

    def prepare(self, keys: Tensor) -> Tensor:
        """What can be computed from the keys alone: here, nothing. ``(…, S, D)`` to ``(…, S, D)``."""
        return keys

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores ``(…, T, S)`` of queries ``(…, T, D)``.

        Raises:
            ValueError: the last axes differ.
        """
        if queries.shape[-1] != prepared.shape[-1]:
            raise ValueError(
                f"queries: expected the keys' size {prepared.shape[-1]} on the last axis, got {queries.shape[-1]}"
            )
        return queries @ prepared.transpose(-2, -1)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """``score(queries, prepare(keys))``."""
        return self.score(queries, self.prepare(keys))


class ScaledDot(Dot):
    """The dot product divided by √D, which keeps its variance at 1 when the entries have variance 1.

    Source: Vaswani et al. 2017, eq. 1.
    """

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores ``(…, T, S)`` of queries ``(…, T, D)``; raises as ``Dot``."""
        return super().score(queries, prepared) / math.sqrt(max(queries.shape[-1], 1))


class General(nn.Module):
    """The bilinear form q·W k with one learned matrix; query and key may differ in size.

    Source: Luong et al. 2015, section 3.1, "general".

    Raises:
        ValueError: a size below 1; in use, a last axis of another size.
    """

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        check_size("query_dim", query_dim)
        check_size("key_dim", key_dim)
        self.key_to_query = nn.Linear(key_dim, query_dim, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """W k, the keys seen from the queries' space: ``(…, S, Dk)`` to ``(…, S, Dq)``."""
        _check_last("keys", keys, self.key_to_query.in_features)
        return self.key_to_query(keys)

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores ``(…, T, S)`` of queries ``(…, T, Dq)``."""
        _check_last("queries", queries, self.key_to_query.out_features)
        return queries @ prepared.transpose(-2, -1)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """``score(queries, prepare(keys))``."""
        return self.score(queries, self.prepare(keys))


class Additive(nn.Module):
    """A one-layer perceptron, v·tanh(W q + U k); query and key may differ in size.

    Its scores never exceed the sum of \\|v\\|, so they need no scaling; but it builds a tensor ``hidden_dim`` times
    the size of the scores. The *concat* score v·tanh(W [q; k]) is the same function, with W split in two.

    Source: Bahdanau et al. 2015, appendix A.1.2; Luong et al. 2015, section 3.1, "concat".

    Raises:
        ValueError: a size below 1; in use, a last axis of another size.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__()
        check_size("query_dim", query_dim)
        check_size("key_dim", key_dim)
        check_size("hidden_dim", hidden_dim)
        self.query = nn.Linear(query_dim, hidden_dim, bias=False)
        self.key = nn.Linear(key_dim, hidden_dim, bias=False)
        self.energy = nn.Linear(hidden_dim, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """U k, the keys' half of the perceptron: ``(…, S, Dk)`` to ``(…, S, hidden)``."""
        _check_last("keys", keys, self.key.in_features)
        return self.key(keys)

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores ``(…, T, S)`` of queries ``(…, T, Dq)``."""
        _check_last("queries", queries, self.query.in_features)
        hidden = torch.tanh(self.query(queries).unsqueeze(-2) + prepared.unsqueeze(-3))
        return self.energy(hidden).squeeze(-1)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """``score(queries, prepare(keys))``."""
        return self.score(queries, self.prepare(keys))


def _check_last(name: str, tensor: Tensor, size: int) -> None:
    if tensor.shape[-1] != size:
        raise ValueError(f"{name}: expected size {size} on the last axis, got {tensor.shape[-1]}")
