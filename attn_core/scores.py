"""Scoring functions: how well does a query fit a key?

Each is a module with two steps, so that keys which serve many queries are worked on once:
``score(queries, project_keys(keys))`` with queries ``(…, T, Dq)``, keys ``(…, S, Dk)`` and scores ``(…, T, S)``.
Calling the module does both steps.
"""

import math

import torch
from torch import Tensor, nn

from attn_core.contract import check_integer, check_leading, kind


class Dot(nn.Module):
    """The dot product, q·k: the two sizes must be equal, and nothing is learned.

    Source: Luong et al. 2015, section 3.1, "dot".
    """

    def project_keys(self, keys: Tensor) -> Tensor:
        """What can be computed from the keys alone: here, nothing. ``(…, S, D)`` to ``(…, S, D)``."""
        return keys

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores ``(…, T, S)`` of queries ``(…, T, D)``.

        Raises:
            ValueError: if the last axes, the dtypes or the devices differ, or the leading axes do not broadcast.
        """
        _check_vectors("keys", prepared)
        _check_vectors("queries", queries, size=prepared.shape[-1], of=prepared)
        return queries @ prepared.transpose(-2, -1)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """``score(queries, project_keys(keys))``."""
        return self.score(queries, self.project_keys(keys))


class ScaledDot(Dot):
    """The dot product divided by √D, which keeps its variance at 1 when the entries have variance 1.

    Source: Vaswani et al. 2017, eq. 1.
    """

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores ``(…, T, S)`` of queries ``(…, T, D)``; raises as ``Dot``."""
        _check_vectors("queries", queries)
        # The queries, not the scores, are divided: in half precision the undivided product may be infinite.
        return super().score(queries / math.sqrt(max(queries.shape[-1], 1)), prepared)


class General(nn.Module):
    """The bilinear form q·W k with one learned matrix; query and key may differ in size.

    Source: Luong et al. 2015, section 3.1, "general".

    Raises:
        ValueError: if a size is below 1; in use, if the last axis, dtype or device is not that of the parameters.
    """

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        check_integer("query_dim", query_dim)
        check_integer("key_dim", key_dim)
        self.key_to_query = nn.Linear(key_dim, query_dim, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        """W k, the keys mapped into the queries' space: ``(…, S, Dk)`` to ``(…, S, Dq)``."""
        _check_vectors("keys", keys, size=self.key_to_query.in_features, weight=self.key_to_query.weight)
        return self.key_to_query(keys)

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores ``(…, T, S)`` of queries ``(…, T, Dq)``."""
        _check_vectors("keys", prepared)
        _check_vectors("queries", queries, size=self.key_to_query.out_features, of=prepared)
        return queries @ prepared.transpose(-2, -1)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """``score(queries, project_keys(keys))``."""
        return self.score(queries, self.project_keys(keys))


class Additive(nn.Module):
    """A one-layer perceptron, v·tanh(W q + U k); query and key may differ in size.

    Its scores never exceed the sum of \\|v\\|, so they need no scaling; but it builds a tensor ``hidden_dim`` times
    the size of the scores. The *concat* score v·tanh(W [q; k]) is the same function, with W split in two.

    Source: Bahdanau et al. 2015, appendix A.1.2; Luong et al. 2015, section 3.1, "concat".

    Raises:
        ValueError: if a size is below 1; in use, if the last axis, dtype or device is not that of the parameters.
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int) -> None:
        super().__init__()
        check_integer("query_dim", query_dim)
        check_integer("key_dim", key_dim)
        check_integer("hidden_dim", hidden_dim)
        self.query = nn.Linear(query_dim, hidden_dim, bias=False)
        self.key = nn.Linear(key_dim, hidden_dim, bias=False)
        self.energy = nn.Linear(hidden_dim, 1, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        """U k, the keys' half of the perceptron: ``(…, S, Dk)`` to ``(…, S, hidden)``."""
        _check_vectors("keys", keys, size=self.key.in_features, weight=self.key.weight)
        return self.key(keys)

    def score(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores ``(…, T, S)`` of queries ``(…, T, Dq)``."""
        _check_vectors("keys", prepared)
        _check_vectors("queries", queries, size=self.query.in_features, of=prepared)
        hidden = torch.tanh(self.query(queries).unsqueeze(-2) + prepared.unsqueeze(-3))
        return self.energy(hidden).squeeze(-1)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """``score(queries, project_keys(keys))``."""
        return self.score(queries, self.project_keys(keys))


def _check_vectors(
    name: str, vectors: Tensor, *, size: int | None = None, of: Tensor | None = None, weight: Tensor | None = None
) -> None:
    """Vectors ``(…, n, size)``, of the ``weight``'s dtype and device; where they meet the prepared keys ``of``, of
    theirs, and with the same leading axes.
    """
    if not isinstance(vectors, Tensor) or not vectors.dtype.is_floating_point or vectors.dim() < 2:
        raise ValueError(f"{name}: expected a floating tensor of at least 2 axes, got {kind(vectors)}")
    if size is not None and vectors.shape[-1] != size:
        raise ValueError(f"{name}: expected size {size} on the last axis, got {vectors.shape[-1]}")
    for other, whose in ((of, "keys"), (weight, "weights")):
        if other is None:
            continue
        if vectors.device != other.device:
            raise ValueError(f"{name}: expected the device of the {whose}, {other.device}, got {vectors.device}")
        if vectors.dtype != other.dtype and not torch.is_autocast_enabled(vectors.device.type):
            raise ValueError(f"{name}: expected the dtype of the {whose}, {other.dtype}, got {vectors.dtype}")
    if of is not None:
        check_leading(name, vectors, "the keys", of)
