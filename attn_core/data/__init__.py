"""Text to tokens to batches: our corpus with its true alignments, real pairs, vocabularies, batches."""

from attn_core.data.batches import Batch, Batches
from attn_core.data.grammar import EXAMPLE, Corpus, corpus
from attn_core.data.pairs import Pair
from attn_core.data.tatoeba import tatoeba_corpus
from attn_core.data.tokens import tokenize
from attn_core.data.vocab import Vocab

__all__ = ["EXAMPLE", "Batch", "Batches", "Corpus", "Pair", "Vocab", "corpus", "tatoeba_corpus", "tokenize"]
