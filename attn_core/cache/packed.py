"""A batch without padding, in which each row is one token: one request reads 200, while others decode one each.

All layers but attention act on single tokens anyway, so only this cache has to know which rows belong together.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attn_core.cache.block_tables import BlockTables, StreamingWindow
from attn_core.cache.cascade import cascade_attention
from attn_core.cache.paged import one_tile, paged_attention, rows_in_tile, seen, tile
from attn_core.cache.pools import BlockPool
from attn_core.cache.protocol import Cache
from attn_core.contract import check_integer, shown
from attn_core.device import in_tiles
from attn_core.mechanisms.dense import is_plain_softmax

LEAST_SHARED, LEAST_SAVED = 128, 8192
"""How long a beginning has to be for sequences to attend to it together (``cascade_attention``), and how many tokens
less have to be read then, all rows together: below that, the second call takes longer than the reading."""


class _Member(NamedTuple):
    """A sequence: its first row, the blocks it reads, how many tokens come before its new ones, and their parents."""

    row: int
    blocks: list[int]
    before: int
    parents: Sequence[int]


_Group = tuple[Any, Tensor, Callable[..., Tensor]]
"""What sequences attend with together: their rows, their blocks, and the attention."""


class PackedKVCache(Cache):
    """Keys and values of one layer in blocks, for a batch in which each row is one token; ``for_layers`` makes them.

    ``lengths (N,)`` holds the position of each of the N tokens. The cache is good for one call of the model, with
    ``tokens (N, 1)``: every layer writes the tokens' keys and values to their slots and attends to those of the same
    sequence up to the token itself. Of a draft tree, which branches, a token sees the text before and its ancestors.
    """

    def __init__(self, positions: list[int], pool: BlockPool, slots: Tensor, groups: list[_Group]) -> None:
        super().__init__(positions, pool.keys.device)
        self.pool, self._slots, self._groups = pool, slots, groups

    @classmethod
    def for_layers(
        cls,
        tables: BlockTables,
        pools: Sequence[BlockPool],
        tokens: Mapping[int, range],
        *,
        window: StreamingWindow | None = None,
        trees: Mapping[int, Sequence[int]] | None = None,
    ) -> list["PackedKVCache"]:
        """One cache for each layer's pool. The rows are these ``tokens`` of each sequence, sequence by sequence.

        Where a sequence is in ``trees``, its tokens are a tree: token i + 1 has the parent ``trees[sequence][i]``.
        """
        if not pools or not tokens:
            raise ValueError(f"tokens: expected a pool and a sequence, got {len(pools)} pools and {shown(tokens)}")
        size, device = tables.block_size, pools[0].keys.device
        for pool in pools:
            if (len(pool.keys), pool.keys.shape[2]) != (tables.num_blocks, size):
                expected = f"{tables.num_blocks} blocks of {size} tokens, as the tables have"
                raise ValueError(f"pools: expected {expected}, got keys of shape {tuple(pool.keys.shape)}")
        positions: list[int] = []
        slots: list[tuple[int, int]] = []
        members: dict[int, list[_Member]] = defaultdict(list)  # by the number of new tokens
        for sequence, new in tokens.items():
            check_integer("tokens", new.stop, at_most=tables.length(sequence))
            if not new or new.step != 1 or new.start < 0:
                raise ValueError(f"tokens: expected consecutive tokens of sequence {sequence}, got {new}")
            blocks = tables.table(sequence)
            unseen = range(0) if window is None else window.unseen(new.start, size)  # blocks that are not read
            read = blocks[: unseen.start] + blocks[unseen.stop : -(-new.stop // size)]
            parents = (trees or {}).get(sequence, range(len(new) - 1))
            members[len(new)].append(_Member(len(positions), read, new.start - len(unseen) * size, parents))
            depths = (ancestors(parents).sum(-1) - 1).tolist() if branches(parents) else range(len(new))
            positions += [new.start + depth for depth in depths]
            slots += [(blocks[i // size], i % size) for i in new]
        groups: list[_Group] = []
        for alike in members.values():
            parts = _by_beginning(alike, pools[0].keys) if window is None and in_tiles(device) else [(alike, 0)]
            groups += [_group(some, shared, pools[0], window) for some, shared in parts]
        placed = torch.tensor(slots, device=device)
        return [cls(positions, pool, placed, groups) for pool in pools]

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
        for rows, table, attention in self._groups:
            queries = q[:, :, 0][rows].transpose(1, 2)  # (B, H, T, D)
            out[:, :, 0][rows] = attention(queries, *self.pool.read(table)).transpose(1, 2)
        return out


def branches(parents: Sequence[int]) -> bool:
    """Whether these are the parents of a tree that is no chain 0, 1, 2, …"""
    return list(parents) != list(range(len(parents)))


def ancestors(parents: Sequence[int]) -> Tensor:
    """Which tokens of a tree each of them comes after, itself included: ``(T, T)``, with a root and T − 1 parents."""
    found = torch.eye(len(parents) + 1, dtype=torch.bool, device="cpu")
    for token, parent in enumerate(parents, start=1):
        found[token] |= found[parent]
    return found


def tree_mask(before: Tensor, tree: Tensor, slots: int, window: StreamingWindow | None) -> Tensor:
    """Which of a row's ``slots`` the tokens of its tree see: the text and their ancestors, within the window.

    Shapes: ``before (B,)``, the tokens of the text, which the tree's follow; ``tree (B, T, T)``, of each row its
    ``ancestors``. Returns ``(B, T, slots)``. A token's position is that of the text's end plus its depth.
    """
    before, slot, depth = before[:, None], torch.arange(slots, device="cpu"), tree.sum(-1)
    token = (slot - before).clamp(0, tree.shape[1] - 1)
    text = slot < before
    position = slot.where(text, before + depth.gather(1, token) - 1)
    above = tree.gather(2, token[:, None].expand(-1, tree.shape[1], -1))
    return (text[:, None] | above) & seen(position[:, None], before + depth, window)


def _by_beginning(members: list[_Member], keys: Tensor) -> Iterator[tuple[list[_Member], int]]:
    """Sequences that begin alike, with the number of blocks that they share; and the others, which share none.

    Of these, where each has one new token, as many come together as fit into a tile, those of like lengths.
    """
    size = keys.shape[2]
    last = -(-LEAST_SHARED // size)
    alike: dict[int, list[_Member]] = defaultdict(list)  # by the last block of the least beginning
    for one in members:
        alike[one.blocks[last - 1] if one.before >= last * size else -1].append(one)
    others = alike.pop(-1, [])
    for some in alike.values():
        columns = zip(*(one.blocks[: one.before // size] for one in some), strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
        if (len(some) - 1) * shared * size >= LEAST_SAVED:
            yield some, shared
        else:
            others += some
    others.sort(key=lambda one: one.before, reverse=True)
    while others:
        several = len(others) if others[0].parents else max(1, rows_in_tile(others[0].before + 1, keys))
        yield sorted(others[:several]), 0
        others = others[several:]


def _group(members: list[_Member], shared: int, pool: BlockPool, window: StreamingWindow | None) -> _Group:
    size, device = pool.keys.shape[2], pool.keys.device
    count, width = len(members[0].parents) + 1, max(len(one.blocks) for one in members)
    starts = [one.row for one in members]
    rows: Any = torch.tensor(starts, device=device)[:, None] + torch.arange(count, device=device)
    if count == 1 and starts == list(range(starts[0], starts[0] + len(starts))):
        rows = slice(starts[0], starts[0] + len(starts)), None  # of neighbours nothing need be copied
    table = torch.tensor([one.blocks + [0] * (width - len(one.blocks)) for one in members], device=device)
    before, mask = torch.tensor([one.before for one in members]), None
    if any(branches(one.parents) for one in members):
        tree = torch.stack([ancestors(one.parents) for one in members])
        mask, window = tree_mask(before, tree, width * size, window).to(device), None
    lengths = before + count
    if shared:
        return rows, table, partial(cascade_attention, lengths=lengths, shared=shared, mask=mask)
    fits = len(members) <= rows_in_tile(int(lengths.max()), pool.keys)
    if fits and count == 1 and window is None and in_tiles(device):
        blocks, offsets, true = tile(table, lengths, size)
        return rows, blocks, partial(one_tile, offsets=offsets, true=true)
    return rows, table, partial(paged_attention, lengths=lengths, window=window, mask=mask)
