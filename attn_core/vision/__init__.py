"""Attention beyond text: over the patches of an image, and between pictures and captions.

Images are floating tensors ``(B, channels, height, width)``; their R regions are square patches, row by row.
"""

from attn_core.vision.contrastive import (
    ContrastivePair,
    contrastive_loss,
    pair_loss,
    sigmoid_loss,
    sigmoid_pair_loss,
    zero_shot,
)
from attn_core.vision.patches import PatchEmbedding, VisionTransformer

__all__ = [
    "ContrastivePair",
    "PatchEmbedding",
    "VisionTransformer",
    "contrastive_loss",
    "pair_loss",
    "sigmoid_loss",
    "sigmoid_pair_loss",
    "zero_shot",
]
