"""Recurrent states: layers that sum their past up need no more memory for a longer one."""

import torch
from torch import Tensor, nn

from attn_core import masks
from attn_core.cache.protocol import Cache


class RecurrentState(Cache):
    """A cache that keeps sums in place of keys and values: a tuple of tensors, one row of the batch each.

    ``layer`` is the one whose sums it keeps. A sum cannot be taken apart again, so ``truncate`` takes back the last
    call, which is what a call that failed needs, and nothing before it.
    """

    def __init__(self, layer: nn.Module, state: tuple[Tensor, ...]) -> None:
        super().__init__([0] * len(state[0]), state[0].device)
        self.layer, self.state = layer, state
        self._before = self.lengths, state

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
