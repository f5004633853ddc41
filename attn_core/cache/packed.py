"""A batch without padding, in which each row is one token: one request reads 200, while others decode one each.

All layers but attention act on single tokens anyway, so only this cache has to know which rows belong together.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attn_core.cache.block_tables import BlockTables, StreamingWindow
from attn_core.cache.paged import paged_attention
from attn_core.cache.pools import BlockPool
from attn_core.cache.protocol import Cache
from attn_core.contract import check_integer, shown
from attn_core.mechanisms.dense import is_plain_softmax


class PackedKVCache(Cache):
    """Keys and values of one layer in blocks, for a batch in which each row is one token; ``for_layers`` makes them.

    ``lengths (N,)`` holds the position of each of the N tokens. The cache is good for one call of the model, with
    ``tokens (N, 1)``: every layer writes the tokens' keys and values to their slots and attends to those of the same
    sequence up to the token itself.
    """

    def __init__(
        self,
        positions: list[int],
        pool: BlockPool,
        slots: Tensor,
        groups: list[tuple[Tensor, Tensor, Tensor]],
        window: StreamingWindow | None,
    ) -> None:
        super().__init__(positions, pool.keys.device)
        self.pool, self._slots, self._groups, self._window = pool, slots, groups, window

    @classmethod
    def for_layers(
        cls,
        tables: BlockTables,
        pools: Sequence[BlockPool],
        tokens: Mapping[int, range],
        *,
        window: StreamingWindow | None = None,
    ) -> list["PackedKVCache"]:
        """One cache for each layer's pool. The rows are these ``tokens`` of each sequence, sequence by sequence."""
        if not pools or not tokens:
            raise ValueError(f"tokens: expected a pool and a sequence, got {len(pools)} pools and {shown(tokens)}")
        size, device = tables.block_size, pools[0].keys.device
        for pool in pools:
            if (len(pool.keys), pool.keys.shape[2]) != (tables.num_blocks, size):
                expected = f"{tables.num_blocks} blocks of {size} tokens, as the tables have"
                raise ValueError(f"pools: expected {expected}, got keys of shape {tuple(pool.keys.shape)}")
        positions: list[int] = []
        slots: list[tuple[int, int]] = []
        # Sequences with equally many new tokens attend together: those that decode, for instance.
        alike: dict[int, list[tuple[int, list[int], int]]] = defaultdict(list)
        for sequence, new in tokens.items():
            check_integer("tokens", new.stop, at_most=tables.length(sequence))
            if not new or new.step != 1 or new.start < 0:
                raise ValueError(f"tokens: expected consecutive tokens of sequence {sequence}, got {new}")
            blocks = tables.table(sequence)
            unseen = range(0) if window is None else window.unseen(new.start, size)  # blocks that are not read
            read = blocks[: unseen.start] + blocks[unseen.stop : -(-new.stop // size)]
            alike[len(new)].append((len(positions), read, new.stop - len(unseen) * size))
            positions += new
            slots += [(blocks[i // size], i % size) for i in new]
        groups = []  # of sequences that attend together: their rows, their blocks, and how many tokens lie in these
        for count, members in alike.items():
            first, used, lengths = zip(*members, strict=True)
            width = max(map(len, used))
            rows = torch.tensor(first, device=device)[:, None] + torch.arange(count, device=device)
            table = torch.tensor([row + [0] * (width - len(row)) for row in used], device=device)
            groups.append((rows, table, torch.tensor(lengths)))
        placed = torch.tensor(slots, device=device)
        return [cls(positions, pool, placed, groups, window) for pool in pools]

    def attend(self, layer: Any, q: Tensor, k: Tensor, v: Tensor, **refused: Tensor | None) -> Tensor:
        """Write the tokens' keys and values; softmax attention from each token to its sequence, up to itself.

        Refuses another mechanism, positions that add to the scores, and all other arguments.
        """
        added = None if layer.positions is None else layer.positions.bias(self.lengths, self.lengths)
        if not is_plain_softmax(layer.mechanism) or any(x is not None for x in (added, *refused.values())):
            expected = "Dense() without a soft cap, a mask or a bias beside rows of single tokens"
            raise ValueError(f"cache: expected {expected}, got {type(layer.mechanism).__name__}")
        self.pool.write(self._slots, k.flatten(1, 2), v.flatten(1, 2))
        out = q.new_empty(*q.shape[:3], self.pool.values.shape[3])
        for rows, table, lengths in self._groups:
            queries = q[rows, :, 0].transpose(1, 2)  # (B, H, T, D)
            attended = paged_attention(queries, *self.pool.read(table), lengths, window=self._window)
            out[rows, :, 0] = attended.transpose(1, 2)
        return out
