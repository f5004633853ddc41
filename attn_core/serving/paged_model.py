"""A language model whose keys and values lie in blocks."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attn_core.cache import BlockPool, BlockTables, PackedKVCache, StreamingWindow
from attn_core.contract import kind
from attn_core.mechanisms.dense import is_plain_softmax
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel
from attn_core.transformer.flat import flat


class PagedModel:
    """A ``LanguageModel``, and a ``pool`` of blocks for each of its layers.

    With a ``window``, each token attends to the first and the last of those before it. Each layer has to be softmax
    attention over every key (``MultiHeadAttention``, ``Dense``), without positions that add to the scores (``ALiBi``).
    """

    def __init__(
        self,
        model: LanguageModel,
        tables: BlockTables,
        *,
        pool: type[BlockPool] = BlockPool,
        window: StreamingWindow | None = None,
    ) -> None:
        if not isinstance(model, LanguageModel):
            raise ValueError(f"model: expected a LanguageModel, got {kind(model)}")
        self.model, self.tables, self.window = model, tables, window
        self.device, self._stack = next(model.parameters()).device, flat(model.stack)
        self.pools: list[BlockPool] = []
        layers: Any = model.stack.layers
        for attention in (layer.attention for layer in layers):
            if not isinstance(attention, MultiHeadAttention) or not is_plain_softmax(attention.mechanism):
                found = kind(getattr(attention, "mechanism", attention))
                raise ValueError(f"model: expected MultiHeadAttention with Dense() in each layer, got {found}")
            if not isinstance(attention.positions, Rotary | None):
                raise ValueError(f"positions: expected added ones, or Rotary, got {kind(attention.positions)}")
            keys = attention.new_cache(1, 1).keys  # of the layer's heads, dtype and device
            sizes = (tables.num_blocks, tables.block_size, keys.shape[1], keys.shape[3])
            self.pools.append(pool(*sizes, dtype=keys.dtype, device=keys.device))

    @torch.no_grad()
    def read(
        self,
        tokens: Mapping[int, tuple[int, Sequence[int]]],
        rows: Sequence[int],
        trees: Mapping[int, Sequence[int]] | None = None,
    ) -> Tensor:
        """Read tokens of each sequence, ``{sequence: (position of the first, ids)}``, which the tables have room for.

        Of a sequence in ``trees`` they are a tree, with these parents of all but the first (``PackedKVCache``).
        Returns the logits ``(len(rows), V)`` after these rows, of the tokens of all sequences one after the other.
        """
        ranges = {sequence: range(begin, begin + len(ids)) for sequence, (begin, ids) in tokens.items()}
        caches = PackedKVCache.for_layers(self.tables, self.pools, ranges, window=self.window, trees=trees)
        packed = torch.tensor([token for _, ids in tokens.values() for token in ids], device=self.device)
        vectors = self.model.read(packed[:, None], caches, stack=self._stack)[:, 0]
        return self.model.embedding.logits(vectors[torch.tensor(rows, dtype=torch.long, device=self.device)])

    def keep(self, paths: Mapping[int, tuple[int, Sequence[int]]]) -> None:
        """Move the keys and values of a path through each tree to where those of a text would lie.

        ``paths`` are ``{sequence: (slot of the first token, tokens of the path after it)}``, as the tree numbers them.
        """
        size, slots = self.tables.block_size, []
        for sequence, (begin, path) in paths.items():
            table = self.tables.table(sequence)
            moves = [(begin + node, begin + depth) for depth, node in enumerate(path, 1) if node != depth]
            slots += [[(table[i // size], i % size) for i in move] for move in moves]
        if slots:
            source, target = torch.tensor(slots, device=self.device).unbind(1)
            for pool in self.pools:
                keys, values, blocks = pool.read(source[:, 0])
                pool.write(target, keys[blocks, :, source[:, 1]], values[blocks, :, source[:, 1]])
