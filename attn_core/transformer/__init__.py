"""The Transformer: encoder–decoder, encoder-only and decoder-only."""

from attn_core.transformer.config import TransformerConfig
from attn_core.transformer.feed_forward import FeedForward, SwiGLU
from attn_core.transformer.layers import AddNorm, DecoderLayer, EncoderLayer
from attn_core.transformer.models import LanguageModel, SegmentEncoder, Transformer, TransformerEncoder
from attn_core.transformer.stacks import EncoderStack, TokenEmbedding
