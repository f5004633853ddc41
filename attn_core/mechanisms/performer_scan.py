"""A causal sum over features, all at once: for ``Performer`` where nothing may depend on the numbers themselves."""

import math

import torch
from torch import Tensor
from torch.nn import functional

PAIRED = 16
"""Up to how many keys are summed pair by pair; it changes rounding only."""


def scan(by_query: Tensor, by_key: Tensor, values: Tensor, highest: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
    """What each query reads from the keys up to its own, ``(B, G, R, N, Dv)``; the new ``highest`` and ``sums``.

    ``by_query (B, G, R, N, m)`` and ``by_key (B, G, N, m)`` are base-2 logarithms of features, of any size. ``sums
    (B, G, m, Dv)`` of the keys before these are relative to ``highest (B, G, 1, m)``. A query's features are relative
    to the largest logarithm that it sees itself. Within small chunks, exponents are computed pair by pair; the sums
    before each chunk come from one product with a matrix of chunks by chunks for each feature. With chunks of about the
    cube root of N, both take memory for about N ** (4 / 3) · m numbers a head.
    """
    tokens, size = by_key.shape[2], max(PAIRED, round(by_key.shape[2] ** (1 / 3)))
    if fill := -tokens % size:  # queries whose output is cut off, and hidden keys
        by_query, values = (functional.pad(x, (0, 0, 0, fill)) for x in (by_query, values))
        by_key = functional.pad(by_key, (0, 0, 0, fill), value=-math.inf)
    highest = torch.cat((highest.mT, by_key.detach().mT), -1).cummax(-1).values
    by_query = by_query - (by_query.detach() + highest[:, :, None, :, 1:].mT).amax(-1, keepdim=True)
    ends = highest[..., ::size]  # before each chunk, and after the last: (B, G, m, C + 1)
    by_query, by_key, values = (x.unflatten(-2, (-1, size)) for x in (by_query, by_key, values))
    later = torch.ones(size, size, dtype=torch.bool, device=values.device).triu(1)[..., None]
    pairs = (by_query[..., :, None, :] + by_key[:, :, None, :, None]).masked_fill_(later, -math.inf).exp2_()
    added = torch.exp2(by_key - ends[..., 1:].mT.unsqueeze(3)).mT @ values
    sums = torch.cat((sums.unsqueeze(3), added.transpose(2, 3)), 3)  # (B, G, m, C + 1, Dv)
    kept = (ends[..., None, :] - ends[..., None]).exp2_().tril()  # of sum j after chunk i
    sums = (kept @ sums).transpose(2, 3)
    read = torch.exp2(by_query + ends[..., :-1].mT[:, :, None, :, None]) @ sums[:, :, None, :-1]
    out = (pairs.sum(-1) @ values[:, :, None] + read).flatten(3, 4)[:, :, :, :tokens]
    return out, highest[..., -1:].mT, sums[:, :, -1]
