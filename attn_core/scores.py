"""Scoring functions: how well does a query fit a key?

Each is a module with two steps, so that keys which serve many queries are projected once: ``score(queries,
project_keys(keys))`` with queries ``(…, T, Dq)``, keys ``(…, S, Dk)`` and scores ``(…, T, S)``. Calling the module does
both steps.
"""

import math

import torch
from torch import Tensor, nn

from attn_core.contract import check_integer, kind


class Dot(nn.Module):
    """The dot product, q·k: the two sizes must be equal, and nothing is learned.

    Source: Luong et al. 2015, section 3.1, "dot".
    """

    def project_keys(self, keys: Tensor) -> Tensor:
        """What can be computed from the keys alone: here, nothing."""
        return keys

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores ``(…, T, S)`` of queries and of what ``project_keys`` gave."""
        _check_size("keys", prepared)
        _check_size("queries", queries, prepared.shape[-1])
        return queries @ prepared.mT

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Both steps."""
        return self.score(queries, self.project_keys(keys))


class ScaledDot(Dot):
    """The dot product divided by √D, which keeps its variance at 1 when the entries have variance 1.

    Source: Vaswani et al. 2017, eq. 1.
    """

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """As in ``Dot``."""
        _check_size("queries", queries)
        # The queries, not the scores, are divided: in half precision the undivided product may be infinite.
        return super().score(queries / math.sqrt(max(queries.shape[-1], 1)), prepared)


class General(Dot):
    """The bilinear form q·W k with one learned matrix; query and key may differ in size.

    Source: Luong et al. 2015, section 3.1, "general".
    """

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        check_integer("query_dim", query_dim)
        check_integer("key_dim", key_dim)
        self.key_dim = key_dim
        self.key_to_query = nn.Linear(key_dim, query_dim, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        """W k, the keys mapped into the queries' space: ``(…, S, Dk)`` to ``(…, S, Dq)``."""
        _check_size("keys", keys, self.key_dim)
        return self.key_to_query(keys)


class Additive(nn.Module):
    """A one-layer perceptron, v·tanh(W q + U k); query and key may differ in size.

    It builds a tensor ``hidden_dim`` times the size of the scores. The *concat* score v·tanh(W [q; k]) is the same
    function, with W split in two.

    Source: Bahdanau et al. 2015, appendix A.1.2; Luong et al. 2015, section 3.1, "concat".
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__()
        for name, size in (("query_dim", query_dim), ("key_dim", key_dim), ("hidden_dim", hidden_dim)):
            check_integer(name, size)
        self.query_dim, self.key_dim = query_dim, key_dim
        self.query = nn.Linear(query_dim, hidden_dim, bias=False)
        self.key = nn.Linear(key_dim, hidden_dim, bias=False)
        self.energy = nn.Linear(hidden_dim, 1, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        """U k, the keys' half of the perceptron: ``(…, S, Dk)`` to ``(…, S, hidden)``."""
        _check_size("keys", keys, self.key_dim)
        return self.key(keys)

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """As in ``Dot``."""
        _check_size("queries", queries, self.query_dim)
        hidden = torch.tanh(self.query(queries).unsqueeze(-2) + prepared.unsqueeze(-3))
        return self.energy(hidden).squeeze(-1)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Both steps."""
        return self.score(queries, self.project_keys(keys))


def _check_size(name: str, vectors: Tensor, size: int | None = None) -> None:
    if not isinstance(vectors, Tensor) or not vectors.dtype.is_floating_point or vectors.dim() < 2:
        raise ValueError(f"{name}: expected a floating tensor of at least 2 axes, got {kind(vectors)}")
    if size is not None and vectors.shape[-1] != size:
        raise ValueError(f"{name}: expected size {size} on the last axis, got {vectors.shape[-1]}")
