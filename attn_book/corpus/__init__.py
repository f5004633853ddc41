"""The book's own data: sentence pairs with their true alignments, stories, ambiguous words, and drawings.

``corpus`` writes the sentence pairs of most chapters, and ``EXAMPLE`` is the sentence that all chapters share. The
other data sets are in the modules named after them.
"""

from attn_book.corpus.grammar import EXAMPLE, GrammarCorpus, corpus

__all__ = ["EXAMPLE", "GrammarCorpus", "corpus"]
