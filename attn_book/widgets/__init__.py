"""Interactive pictures, for pointer and keyboard, in a notebook and in a page without a kernel."""

from attn_book.widgets.attention_pattern import AttentionPatternExplorer
from attn_book.widgets.base import StaticWidget
from attn_book.widgets.heatmap import AttentionHeatmap
from attn_book.widgets.kernel_smoother import KernelSmoother
from attn_book.widgets.masked_word import MaskedWordExplorer
from attn_book.widgets.online_softmax import OnlineSoftmaxStepper
from attn_book.widgets.paged_cache import PagedCacheExplorer
from attn_book.widgets.patch_attention import PatchAttentionExplorer
from attn_book.widgets.positional import PositionalEncodingExplorer
from attn_book.widgets.quiz import Quiz
from attn_book.widgets.text_to_image import TextToImage
from attn_book.widgets.translator import Translator

__all__ = [
    "AttentionHeatmap",
    "AttentionPatternExplorer",
    "KernelSmoother",
    "MaskedWordExplorer",
    "OnlineSoftmaxStepper",
    "PagedCacheExplorer",
    "PatchAttentionExplorer",
    "PositionalEncodingExplorer",
    "Quiz",
    "StaticWidget",
    "TextToImage",
    "Translator",
]
