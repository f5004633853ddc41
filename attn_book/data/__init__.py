"""Text to tokens to batches: sentence pairs, vocabularies, batches."""

from attn_book.data.batches import Batch, Batches, EpochBatches, TensorBatch
from attn_book.data.pairs import Corpus, Pair
from attn_book.data.tokens import tokenize
from attn_book.data.vocab import Vocab

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
