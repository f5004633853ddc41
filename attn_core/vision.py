"""Images as sequences of patches."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import check_integer, kind
from attn_core.positions import Learned
from attn_core.transformer import EncoderStack, TransformerConfig

__all__ = ["PatchEmbedding", "VisionTransformer"]


class PatchEmbedding(nn.Module):
    """Cuts images into square patches, row by row, and maps each to a vector: ``(B, 3, H, W)`` to ``(B, R, C)``.

    The R patches do not overlap: this is a convolution with a stride of ``patch_size``.

    Source: Dosovitskiy et al. 2021, eq. 1.
    """

    def __init__(self, patch_size: int, model_dim: int) -> None:
        super().__init__()
        check_integer("patch_size", patch_size)
        check_integer("model_dim", model_dim)
        self.patch_size, self.model_dim = patch_size, model_dim
        self.projection = nn.Linear(3 * patch_size**2, model_dim)

    def forward(self, images: Tensor) -> Tensor:
        """The vectors ``(B, R, C)`` of all patches of ``images (B, 3, H, W)``."""
        check_images(images, 3, self.patch_size)
        patches = functional.unfold(images, self.patch_size, stride=self.patch_size)
        return self.projection(patches.transpose(1, 2))


class VisionTransformer(nn.Module):
    """A Transformer encoder over the patches of square images: one vector per image.

    ``config`` gives the sizes; its vocabulary is not used. A learned class token is put before the patches, and its
    vector in the last layer is the image's. ``capture_attention`` collects maps ``(B, H, 1 + R, 1 + R)``, the class
    token first.

    Source: Dosovitskiy et al. 2021, section 3.1; its layers are pre-norm (``norm_first``).
    """

    def __init__(self, config: TransformerConfig, *, image_size: int, patch_size: int) -> None:
        super().__init__()
        self.patches = PatchEmbedding(patch_size, config.model_dim)
        check_integer("image_size", image_size)
        if image_size % patch_size:
            raise ValueError(f"image_size: expected a multiple of patch_size {patch_size}, got {image_size}")
        self.image_size = image_size
        self.class_token = nn.Parameter(0.02 * torch.randn(config.model_dim))
        self.positions = Learned((image_size // patch_size) ** 2 + 1, config.model_dim)
        self.dropout = nn.Dropout(config.dropout)
        self.stack = EncoderStack(config)

    def forward(self, images: Tensor) -> Tensor:
        """One vector per image, ``(B, C)``, of ``images (B, 3, image_size, image_size)``."""
        x = self.patches(images)
        if images.shape[2:] != (self.image_size, self.image_size):
            raise ValueError(f"images: expected sides of {self.image_size} pixels, got {tuple(images.shape[2:])}")
        x = torch.cat([self.class_token.to(x.dtype).expand(x.shape[0], 1, -1), x], 1)
        return self.stack(self.dropout(self.positions(x)))[:, 0]


def check_images(images: Tensor, channels: int, patch_size: int) -> None:
    """Images are floating, ``(B, channels, H, W)``, with sides that ``patch_size`` divides."""
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.dtype.is_floating_point:
        raise ValueError(f"images: expected a floating tensor (batch, channels, height, width), got {kind(images)}")
    _, found, *sides = images.shape
    if found != channels or 0 in images.shape or any(side % patch_size for side in sides):
        expected = f"{channels} channels and sides that {patch_size} divides"
        raise ValueError(f"images: expected {expected}, got shape {tuple(images.shape)}")
