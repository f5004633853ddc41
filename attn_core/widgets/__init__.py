"""Pictures that answer to the pointer and the keyboard, in a notebook and in a page without a kernel."""

from attn_core.widgets.attention_pattern import AttentionPatternExplorer
from attn_core.widgets.base import StaticWidget
from attn_core.widgets.heatmap import AttentionHeatmap
from attn_core.widgets.masked_word import MaskedWordExplorer
from attn_core.widgets.online_softmax import OnlineSoftmaxStepper
from attn_core.widgets.paged_cache import PagedCacheExplorer
from attn_core.widgets.patch_attention import PatchAttentionExplorer
from attn_core.widgets.positional import PositionalEncodingExplorer
from attn_core.widgets.quiz import Quiz
from attn_core.widgets.translator import Translator

__all__ = [
    "AttentionHeatmap",
    "AttentionPatternExplorer",
    "MaskedWordExplorer",
    "OnlineSoftmaxStepper",
    "PagedCacheExplorer",
    "PatchAttentionExplorer",
    "PositionalEncodingExplorer",
    "Quiz",
    "StaticWidget",
    "Translator",
]
