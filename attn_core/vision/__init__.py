"""Attention beyond text: over the patches of an image, from words to regions, between pictures and captions.

Images are floating tensors ``(B, channels, height, width)``; their R regions are square patches, row by row.
"""

from attn_core.vision.captioner import ImageEncoder, doubly_stochastic_loss, region_maps
from attn_core.vision.contrastive import ContrastivePair, contrastive_loss, pair_loss, zero_shot
from attn_core.vision.patches import PatchEmbedding, VisionTransformer

__all__ = [
    "ContrastivePair",
    "ImageEncoder",
    "PatchEmbedding",
    "VisionTransformer",
    "contrastive_loss",
    "doubly_stochastic_loss",
    "pair_loss",
    "region_maps",
    "zero_shot",
]
