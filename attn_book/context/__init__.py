"""Attention in the light of a context: what each word asks, and answers to, depends on its sentence and paragraph.

The score of a query with a key sees these two words alone. Here a context, one vector for a paragraph or one for each
word, is blended into queries and keys before they meet (``ContextAttention``), so that every product has the shapes of
plain attention. Three forms of context: the paragraph's mean, the hierarchy of word, sentence and paragraph, and what
each word asks of the sentences anew.

Source: Yang et al. 2019 (Context-Aware Self-Attention Networks); Yang et al. 2016 (Hierarchical Attention Networks).
"""

from attn_book.context.attention import ContextAttention, blend
from attn_book.context.forms import (
    AttentionPooling,
    DynamicContext,
    GlobalContext,
    HierarchicalContext,
    global_context,
    sentence_members,
)

__all__ = [
    "AttentionPooling",
    "ContextAttention",
    "DynamicContext",
    "GlobalContext",
    "HierarchicalContext",
    "blend",
    "global_context",
    "sentence_members",
]
