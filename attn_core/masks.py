"""Every mask is built here. A mask is boolean, and True means: may attend."""

import torch
from torch import Tensor

from attn_core.contract import INTEGERS, check_integer, check_integers, kind, traced


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """Which of ``size`` positions lie within each length, from 0 to ``size``: ``lengths (…)`` gives ``(…, size)``."""
    if not isinstance(lengths, Tensor) or lengths.dtype not in INTEGERS:
        raise ValueError(f"lengths: expected an int64 or int32 tensor, got {kind(lengths)}")
    check_integer("size", size, at_least=0)
    if lengths.numel() and not lengths.is_meta and not traced():
        low, high = (int(x) for x in torch.aminmax(lengths))
        if low < 0 or high > size:
            raise ValueError(f"lengths: expected lengths from 0 to {size}, got {low if low < 0 else high}")
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(-1)


def padding(lengths: Tensor, size: int) -> Tensor:
    """The mask that hides padded keys: ``lengths (B,)`` gives ``(B, 1, 1, size)``.

    One length per query, ``(B, T)``, gives ``(B, 1, T, size)``.
    """
    mask = length_mask(lengths, size)
    if mask.dim() not in (2, 3):
        raise ValueError(f"lengths: expected shape (B,) or (B, T), got {tuple(lengths.shape)}")
    return mask[:, None, None] if mask.dim() == 2 else mask[:, None]


def causal(
    query_length: int, key_length: int, offset: Tensor | None = None, *, device: torch.device | str | None = None
) -> Tensor:
    """The causal mask: query i sees key j only if j ≤ i + offset.

    Without ``offset`` the last query is aligned with the last key (offset S − T), as cached decoding needs, and the
    mask has shape ``(T, S)``. With ``offset (B,)``, the number of keys that come before each row's first query, it
    has shape ``(B, 1, T, S)``, on the device of ``offset``; below 0, a row's first queries see no key.
    """
    check_integer("query_length", query_length, at_least=0)
    check_integer("key_length", key_length, at_least=0)
    if offset is None:
        return torch.ones(query_length, key_length, dtype=torch.bool, device=device).tril(key_length - query_length)
    check_integers("offset", offset, axes=1)
    queries = torch.arange(query_length, device=offset.device) + offset[:, None]
    return (torch.arange(key_length, device=offset.device) <= queries[..., None])[:, None]


def same_group(groups: Tensor) -> Tensor:
    """The mask ``(B, 1, T, T)`` that lets each position attend to those of the same number in ``groups (B, T)``."""
    check_integers("groups", groups, axes=2)
    return (groups[:, :, None] == groups[:, None, :])[:, None]
