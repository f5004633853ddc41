"""Which patches an image's vector came from: attention followed through all layers, and patches taken away."""

import torch
from torch import Tensor

from attn_core.contract import check_integer, kind
from attn_core.vision import check_images


def rollout(maps: Tensor) -> Tensor:
    """Attention followed through all layers: how much of each token reaches each, if weights were all that counts.

    Shapes: ``maps (N, L, H, T, T)``, the lowest layer first, rows that sum to 1; returns ``(N, T, T)``, whose rows do
    too. Each layer is the mean of its heads, averaged with the identity for the shortcut around it. What values,
    feed-forward networks and norms do is left out, so it is a hint and no proof.

    Raises:
        ValueError: maps that are not floating, of another shape, or without a layer or head.

    Source: Abnar and Zuidema 2020, section 3.
    """
    if not isinstance(maps, Tensor) or maps.dim() != 5 or not maps.dtype.is_floating_point:
        raise ValueError(f"maps: expected a floating tensor (images, layers, heads, T, T), got {kind(maps)}")
    if maps.shape[3] != maps.shape[4] or 0 in maps.shape[1:]:
        raise ValueError(f"maps: expected shape (images, layers, heads, T, T), got {tuple(maps.shape)}")
    shortcut = torch.eye(maps.shape[-1], dtype=maps.dtype, device=maps.device)
    rolled = shortcut.expand(len(maps), -1, -1)
    for layer in maps.mean(2).unbind(1):
        rolled = (layer + shortcut) / 2 @ rolled
    return rolled


def occlude(images: Tensor, patches: Tensor, patch_size: int) -> Tensor:
    """The images with some patches set to 0: in ``centred`` drawings, paper.

    Shapes: ``images (N, channels, H, W)``; ``patches (N, R)``, boolean, True where to paint over, row by row.

    Raises:
        ValueError: images of another kind or with sides that ``patch_size`` does not divide; ``patches`` that are not
            boolean, or not one for each patch of each image.

    Source: Zeiler and Fergus 2014, section 4.2.
    """
    check_integer("patch_size", patch_size)
    check_images(images, images.shape[1] if isinstance(images, Tensor) and images.dim() > 1 else 0, patch_size)
    rows, columns = images.shape[2] // patch_size, images.shape[3] // patch_size
    shape = (len(images), rows * columns)
    if not isinstance(patches, Tensor) or patches.dtype != torch.bool or tuple(patches.shape) != shape:
        raise ValueError(f"patches: expected a boolean tensor of shape {shape}, got {kind(patches)}")
    grid = patches.view(-1, 1, rows, columns)
    return images.masked_fill(grid.repeat_interleave(patch_size, 2).repeat_interleave(patch_size, 3), 0.0)
