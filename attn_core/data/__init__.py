"""Text to tokens to batches: sentence pairs, vocabularies, batches."""

from attn_core.data.batches import Batch, Batches, EpochBatches, TensorBatch
from attn_core.data.pairs import Corpus, Pair
from attn_core.data.tokens import tokenize
from attn_core.data.vocab import Vocab

__all__ = [
    "Batch",
    "Batches",
    "Corpus",
    "EpochBatches",
    "Pair",
    "TensorBatch",
    "Vocab",
    "tokenize",
]
