"""What attention keeps between two calls: keys and values in one piece or in blocks, or a recurrent state."""

from attn_core.cache.block_tables import BlockTables, OutOfBlocks, Placement, StreamingWindow
from attn_core.cache.cascade import cascade_attention
from attn_core.cache.contiguous import KVCache
from attn_core.cache.packed import PackedKVCache
from attn_core.cache.paged import gathered_attention, paged_attention
from attn_core.cache.pools import BlockPool, QuantisedBlockPool, as_tensors
from attn_core.cache.protocol import Cache, RecurrentState, rollback_on_error
