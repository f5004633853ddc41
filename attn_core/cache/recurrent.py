"""Recurrent states: mechanisms that sum their keys and values up need no more memory for a longer past."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core import masks
from attn_core.cache.protocol import Cache
from attn_core.contract import accum_dtype, kind, without_autocast
from attn_core.mechanisms.linear import LinearAttention, features, linear_attention_step, shares
from attn_core.mechanisms.performer import Performer


class RecurrentState(Cache):
    """A cache that keeps sums in place of keys and values, and so attends in the mechanism's place.

    ``mechanism`` is the one whose sums it keeps, and ``state`` a tuple of tensors, one row of the batch each along
    their first axis. A subclass says in ``_step`` what one token does to it. A sum cannot be taken apart
    again, so ``truncate`` takes back the last call, which is what a call that failed needs, and nothing before it.
    """

    def __init__(self, mechanism: nn.Module, state: tuple[Tensor, ...]) -> None:
        super().__init__([0] * len(state[0]), state[0].device)
        self.mechanism, self.state = mechanism, state
        self._before = self.lengths, state

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Add each row's next tokens, and attend from each of them to all tokens up to it: ``(B, H, T, Dv)``.

        Shapes: ``q (B, H, T, D)``, ``k (B, G, T, D)``, ``v (B, G, T, Dv)``; of row b, only the first ``lengths[b]``
        tokens count, where ``lengths (B,)`` are given.
        """
        tokens = k.shape[2]
        if k.shape[:2] != self.state[0].shape[:2]:
            rows, heads = self.state[0].shape[:2]
            raise ValueError(f"k: expected {rows} rows of {heads} heads, as the state has, got {kind(k)}")
        self._grown(tokens, lengths)  # for its errors
        state, out = self.state, q.new_zeros(*q.shape[:3], v.shape[3])
        counted = None if lengths is None else masks.length_mask(lengths, tokens).to(k.device)
        with without_autocast(q):
            for t in range(tokens):
                out[:, :, t], after = self._step(state, *(x[:, :, t].to(state[0].dtype) for x in (q, k, v)))
                if counted is not None:  # padding leaves its row's sums as they are
                    row = counted[:, t]
                    pairs = zip(after, state, strict=True)
                    after = tuple(new.where(row.view(-1, *[1] * (new.dim() - 1)), old) for new, old in pairs)
                state = after
        self.advance(state, tokens, lengths)
        return out

    def advance(self, state: tuple[Tensor, ...], tokens: int, lengths: Tensor | None = None) -> None:
        """Put in the state after each row's next ``tokens``, or after the first ``lengths (B,)`` of them."""
        counts = self._grown(tokens, lengths)
        self._before, self.state = (self.lengths, self.state), state
        self._grow(counts, tokens if lengths is None else lengths)

    def truncate(self, lengths: Tensor) -> None:
        """Take back the last call, where these are the ``lengths (B,)`` before it.

        Raises:
            ValueError: if they are neither those nor today's.
        """
        masks.length_mask(lengths, self.longest)  # for its errors
        held, state = self._before
        if torch.equal(lengths.to(held), held):
            super().truncate(lengths)
            self.state = state
        elif not torch.equal(lengths.to(held), self.lengths):
            expected = f"{held.tolist()}, those before the last call, since sums cannot be divided"
            raise ValueError(f"lengths: expected {expected}, got {lengths.tolist()}")

    def reorder(self, rows: Tensor) -> None:
        """Choose rows, as ``Cache`` says."""
        super().reorder(rows)
        self.state = tuple(x[rows.to(x.device)] for x in self.state)
        self._before = self.lengths, self.state

    def _step(self, state: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The output ``(B, H, Dv)`` of one token: ``q (B, H, D)``, ``k (B, G, D)``, ``v (B, G, Dv)``; and the state."""
        raise NotImplementedError


class PerformerState(RecurrentState):
    """A ``Performer``'s sums over all keys so far: a step takes the same time and memory after any number of tokens.

    For each feature of ``mechanism``, the state holds the largest logarithm so far ``(B, G, m)``, and relative to it
    the sums of the features times the values, and of the features ``(B, G, m, Dv + 1)``, in float32. A prompt is read
    token by token.

    Source: Katharopoulos et al. 2020, section 3.4 (the recurrent form); Choromanski et al. 2021 (the features).
    """

    def __init__(self, mechanism: Performer, batch_size: int, num_kv_heads: int, *, value_dim: int) -> None:
        self.projection = mechanism.projection.to(accum_dtype(mechanism.projection)) * mechanism.head_dim**-0.25
        highest = self.projection.new_full((batch_size, num_kv_heads, mechanism.features), -math.inf)
        super().__init__(mechanism, (highest, highest.new_zeros(*highest.shape, value_dim + 1)))

    def _step(self, state: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        highest, sums = state
        _, groups, size = k.shape
        # The logarithms of the features of the key; those of the query lack a term that cancels.
        by_key = k @ self.projection.mT - k.square().sum(-1, keepdim=True) / (2 * math.sqrt(size))
        by_query = q.unflatten(1, (groups, -1)) @ self.projection.mT  # (B, G, H / G, m)
        new_highest = torch.maximum(highest, by_key)
        values = functional.pad(v, (0, 1), value=1.0)[:, :, None]  # with a 1, whose sum is that of the weights
        sums = sums * (highest - new_highest).exp()[..., None] + (by_key - new_highest).exp()[..., None] * values
        by_query = by_query + new_highest[:, :, None]
        read = (by_query - by_query.amax(-1, keepdim=True)).exp() @ sums
        return shares(read[..., :-1], read[..., -1:]).flatten(1, 2), (new_highest, sums)


class LinearState(RecurrentState):
    """The state of ``LinearAttention``: the sum of the features of the keys times the values, and of the features.

    It is a matrix ``(B, G, D, Dv + 1)`` in ``dtype``, and a step takes the same time and memory after any number of
    tokens. A prompt is read token by token.

    Source: Katharopoulos et al. 2020, section 3.4.
    """

    def __init__(
        self,
        mechanism: LinearAttention,
        batch_size: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        value_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        state = torch.zeros(batch_size, num_kv_heads, head_dim, value_dim + 1, dtype=dtype, device=device)
        super().__init__(mechanism, (state,))

    def _step(self, state: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        values = functional.pad(v, (0, 1), value=1.0)  # with a 1, whose sum is that of the weights
        read, after = linear_attention_step(features(q), features(k), values, *state, scale=1.0)
        return shares(read[..., :-1], read[..., -1:]), (after,)
