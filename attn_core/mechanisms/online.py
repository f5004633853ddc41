"""Softmax attention over keys that come in tiles: what has to be kept between one tile and the next."""

import math

import torch
from torch import Tensor

from attn_core.contract import kind


class OnlineSoftmax:
    """Softmax attention that reads its keys tile by tile, in any order, and each of them once.

    For each query it keeps the maximum of the scores so far, and relative to that maximum the sum of their exponentials
    and the sum of the values weighted by them. ``rows`` are the leading axes of the scores, one entry a query; sums are
    kept in ``dtype``: float32, or float64 where the inputs have it.

    A score of −inf hides a key. A query that sees no key has an output of zeros and a ``logsumexp`` of −inf. Everything
    is computed in place, and no gradient is passed back.

    Source: Milakov and Gimelshein 2018, algorithm 3 (maximum and sum); Dao et al. 2022, algorithm 1 (the output).
    """

    def __init__(
        self,
        rows: tuple[int, ...],
        value_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        self.maximum = torch.full((*rows, 1), -math.inf, dtype=dtype, device=device)
        self.total = torch.zeros((*rows, 1), dtype=dtype, device=device)
        self.weighted = torch.zeros((*rows, value_dim), dtype=dtype, device=device)

    def add(self, scores: Tensor, values: Tensor) -> None:
        """Take in a tile of n ≥ 1 keys: ``scores (*rows, n)``, which are overwritten, and ``values (…, n, Dv)``."""
        if scores.dtype != self.total.dtype or scores.shape[:-1] != self.total.shape[:-1] or scores.shape[-1] == 0:
            rows = tuple(self.total.shape[:-1])
            raise ValueError(f"scores: expected {self.total.dtype} of shape {(*rows, 'n')}, got {kind(scores)}")
        shape = scores.shape[-1], self.weighted.shape[-1]
        if values.shape[-2:] != shape:
            raise ValueError(f"values: expected shape {('…', *shape)}, got {tuple(values.shape)}")
        if scores.requires_grad and torch.is_grad_enabled():
            raise ValueError("scores: expected no gradient, since they are overwritten: use torch.no_grad()")
        highest = torch.maximum(self.maximum, scores.amax(-1, keepdim=True))
        # If all keys so far are hidden, −inf − (−inf) would be NaN: subtract 0, and the weights are exp(−inf) = 0.
        base = highest.masked_fill(highest == -math.inf, 0.0)
        weights = exponential_(scores.sub_(base))
        shrink = exponential_(self.maximum.sub_(base))  # makes the earlier sums relative to the new maximum
        self.total.mul_(shrink).add_(weights.sum(-1, keepdim=True))
        self.weighted.mul_(shrink).add_(weights @ values.to(weights.dtype))
        self.maximum = highest

    def out(self) -> Tensor:
        """The output of attention to the keys so far, ``(*rows, Dv)``."""
        # Masked, because 0 · NaN is NaN: an empty row gives zeros whatever its values are.
        return (self.weighted / self.total).masked_fill(self.total == 0.0, 0.0)

    def logsumexp(self) -> Tensor:
        """The logarithm of the sum of the exponentials of all scores so far, ``rows``."""
        return (self.maximum + self.total.log()).squeeze(-1)


def exponential_(x: Tensor) -> Tensor:
    """The exponential of ``x``, in place, as a power of 2.

    On CPUs, PyTorch's ``exp`` takes 20 to 200 times as long where the result is close to 0, as many weights are.
    """
    return x.mul_(math.log2(math.e)).exp2_()
