"""Ring attention: a sequence over several processes, whose keys and values travel in a ring from one to the next.

Each process holds an equal part of the tokens. It meets every part of the keys once, and combines what its queries read
from them as flash attention combines tiles: exactly, by the log-sum-exp of each query's scores. No process ever holds
more than three parts of the keys and values, so the length that fits into memory grows with the number of processes.

The tokens are dealt out like cards (striped attention), so that all processes have as much to do under a causal mask.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from attn_core.contract import accum_dtype, contract, kind
from attn_core.derivatives import first_order, refuse_transforms
from attn_core.mechanisms.flash import KEY_TILE, QUERY_TILE, TiledAttention


def stripe(x: Tensor, dim: int, group: "distributed.ProcessGroup | None" = None) -> Tensor:
    """The part of process r of P: entries r, r + P, r + 2P and so on of ``x`` along ``dim``; a view."""
    rank, size = _place(group)
    dim = dim % x.dim()
    if x.shape[dim] % size:
        raise ValueError(f"x: expected a multiple of {size} entries along dim {dim}, got {kind(x)}")
    return x.unflatten(dim, (-1, size)).select(dim + 1, rank)


def unstripe(x: Tensor, dim: int, group: "distributed.ProcessGroup | None" = None) -> Tensor:
    """The whole sequence, in every process, from the parts that ``stripe`` cuts. It passes no gradient back."""
    parts = [torch.empty_like(x.detach().contiguous()) for _ in range(_place(group)[1])]
    if len(parts) == 1:
        return x.detach()
    distributed.all_gather(parts, x.detach().contiguous(), group)
    dim = dim % x.dim()
    return torch.stack(parts, dim + 1).flatten(dim, dim + 1)


def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    group: "distributed.ProcessGroup | None" = None,
) -> Tensor:
    """Attention from this process's queries to the keys of all processes: ``(B, H, n, Dv)``, exact, with gradients.

    Shapes: this process's tokens alone, ``q (B, H, n, D)``, ``k (B, G, n, D)``, ``v (B, G, n, Dv)``. All processes of
    the group call it together with parts of the same shape, which ``stripe`` has cut. ``causal`` means the order in the
    whole sequence; so do positions, which process r adds or rotates as r, r + P, r + 2P and so on.

    While a process works on one part of the keys, the next is under way. In the backward pass the gradients of keys and
    values travel with them until they are where they belong. There are no other derivatives.

    Raises:
        ValueError: if an argument breaks the contract, q has another length than k, or, with gloo, the parts of the
            processes differ in shape or dtype; then every process raises, so that none waits for another.

    Source: Liu et al. 2024 (ring attention); Brandon et al. 2023 (striped attention).
    """
    call = contract(q, k, v, causal=causal, scale=scale)
    refuse_transforms("ring_attention", q, k, v)
    if q.shape[2] != k.shape[2]:
        raise ValueError(f"q: expected {k.shape[2]} tokens, as k has, got {kind(q)}")
    _check_parts(q, k, v, group)
    out = first_order("ring_attention", _Ring, call.group_by_kv_head()[0], k, v, causal, call.scale, group)
    return out.flatten(1, 2).to(q.dtype)


@dataclass(frozen=True)
class _Ring:
    """One process's way through the ring: which keys its queries meet in each turn, and how they travel on."""

    q: Tensor
    k: Tensor
    v: Tensor
    causal: bool
    scale: float
    group: Any

    def forward(self) -> tuple[Tensor, Tensor]:
        """The output and the log-sum-exp of each query's scores, in the accumulation dtype."""
        out = self.q.new_zeros(*self.q.shape[:4], self.v.shape[3], dtype=accum_dtype(self.q))
        logsumexp = torch.full_like(out[..., :1], -math.inf)
        for block, queries, _ in self.turns():
            _combine(out[..., queries, :], logsumexp[..., queries, :], *block.forward())
        return out, logsumexp

    def backward(self, out: Tensor, logsumexp: Tensor, d_out: Tensor) -> tuple[Tensor, ...]:
        """The gradients of q, k and v: those of the keys and values travel with them."""
        dq = torch.zeros_like(self.q, dtype=out.dtype)
        gradients = [torch.zeros_like(x, dtype=out.dtype) for x in (self.k, self.v)]  # of those that are here
        for block, queries, keys in self.turns():
            found = block.backward(*(x[..., queries, :] for x in (out, logsumexp, d_out)))
            dq[..., queries, :] += found[0]
            for gradient, part in zip(gradients, found[1:], strict=True):
                gradient[:, :, keys] += part
            gradients = _arrived(*self.pass_on(gradients))
        return dq.to(self.q.dtype), *(x.to(self.k.dtype) for x in gradients)

    def turns(self) -> Iterator[tuple[TiledAttention, slice, slice]]:
        """In each turn, attention to the keys that have come: which queries take part, and which keys.

        Query i stands at i · P + rank, key j of process s at j · P + s. So under a causal mask a query sees the keys up
        to j = i where s ≤ rank, and otherwise those before: then the first query sees none, and nobody the last key.
        """
        rank, size = _place(self.group)
        k, v = self.k.contiguous(), self.v.contiguous()
        for turn in range(size):
            travelling = self.pass_on([k, v]) if turn < size - 1 else None
            later = int(self.causal and (rank - turn) % size > rank)
            queries, keys = slice(later, None), slice(k.shape[2] - later)
            part = [x.to(accum_dtype(self.q)) for x in (self.q[..., queries, :], k[:, :, keys], v[:, :, keys])]
            yield (
                TiledAttention(part[0], part[1], part[2], None, None, self.causal, self.scale, QUERY_TILE, KEY_TILE),
                queries,
                keys,
            )
            if travelling is not None:
                k, v = _arrived(*travelling)

    def pass_on(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[distributed.Work]]:
        """Begin to send tensors to the next process and to receive those of the one before: where they will be."""
        rank, size = _place(self.group)
        if size == 1:
            return list(tensors), []
        group: Any = self.group or distributed.group.WORLD
        following, previous = (distributed.get_global_rank(group, (rank + n) % size) for n in (1, -1))
        received = [torch.empty_like(x) for x in tensors]
        sending = [distributed.P2POp(distributed.isend, x, following, group) for x in tensors]
        receiving = [distributed.P2POp(distributed.irecv, x, previous, group) for x in received]
        return received, distributed.batch_isend_irecv(sending + receiving)


def _combine(out: Tensor, logsumexp: Tensor, part: Tensor, part_logsumexp: Tensor) -> None:
    """Add what the queries read from further keys, in place."""
    both = torch.logaddexp(logsumexp, part_logsumexp)
    base = both.masked_fill(both == -math.inf, 0.0)  # nothing is seen so far, and exp(−inf) = 0
    out.mul_((logsumexp - base).exp()).add_(part * (part_logsumexp - base).exp())
    logsumexp.copy_(both)


def _arrived(received: list[Tensor], requests: list[distributed.Work]) -> list[Tensor]:
    for request in requests:
        request.wait()
    return received


def _place(group: Any) -> tuple[int, int]:
    """The number of this process, from 0, and how many there are; without ``torchrun``, one."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(group), distributed.get_world_size(group)


def _check_parts(q: Tensor, k: Tensor, v: Tensor, group: Any) -> None:
    """Refuse parts that do not fit together, where asking costs no wait for a GPU."""
    size = _place(group)[1]
    if size == 1 or distributed.get_backend(group) != "gloo":
        return
    everyone: list[Any] = [None] * size
    distributed.all_gather_object(everyone, [kind(x) for x in (q, k, v)], group)
    for name, *parts in zip("qkv", *everyone, strict=True):
        if len(set(parts)) > 1:
            raise ValueError(
                f"{name}: expected parts of one shape and dtype in all processes, got {' and '.join(parts)}"
            )
