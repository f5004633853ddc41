"""Attention over the patches of an image.

Images are floating tensors ``(B, channels, height, width)``; their R regions are square patches, row by row.
"""

from attn_core.vision.patches import PatchEmbedding, VisionTransformer

__all__ = ["PatchEmbedding", "VisionTransformer"]
