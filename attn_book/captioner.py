"""Captions: a recurrent decoder that looks at the regions of an image as it looks at the words of a sentence.

``Seq2Seq(ImageEncoder(…), BahdanauDecoder(…))`` has soft attention, with ``HardDecoder`` it is hard; both are trained,
decoded and shown as on text. The ``source`` is then a batch of images, and its ``lengths (B,)`` count regions.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from attn_book.data import Batch
from attn_core import masks
from attn_core.capture import capture_attention
from attn_core.contract import can_read, check_integer, check_lengths, kind
from attn_core.evaluation import evaluating
from attn_core.positions import Learned
from attn_core.seq2seq import Memory, Seq2Seq
from attn_core.vision import check_images


class ImageEncoder(nn.Module):
    """A small convolutional network that leaves one vector per region: the memory that a decoder looks at.

    Each of its three layers halves the image, so a region is 8 pixels wide; its vector has seen a square of 17 pixels
    around its upper left corner, and a learned position says where it is. The memory's ``final`` is the mean of the
    regions.

    Raises:
        ValueError: if a size is below 1, ``memory_dim`` is below 2, or 8 does not divide ``image_size``; in use, if
            images are of another kind or size, or lengths are not a number of regions, one at least, for each image.

    Source: Xu et al. 2015, section 3.1.1, whose network was a large one, trained beforehand.
    """

    REGION = 8

    def __init__(self, *, image_size: int, memory_dim: int, channels: int = 3) -> None:
        super().__init__()
        for name, size in (("image_size", image_size), ("memory_dim", memory_dim), ("channels", channels)):
            check_integer(name, size)
        if memory_dim < 2:
            raise ValueError(f"memory_dim: expected 2 at least, got {memory_dim}")
        if image_size % self.REGION:
            raise ValueError(f"image_size: expected a multiple of {self.REGION}, got {image_size}")
        self.image_size, self.channels, self.memory_dim = image_size, channels, memory_dim
        half = _layer(channels, memory_dim // 2, 5)
        self.layers = nn.Sequential(*half, *_layer(memory_dim // 2, memory_dim, 3), *_layer(memory_dim, memory_dim, 3))
        self.positions = Learned((image_size // self.REGION) ** 2, memory_dim)

    def forward(self, images: Tensor, lengths: Tensor) -> Memory:
        """The regions of ``images (B, channels, H, W)``, the first ``lengths (B,)`` of which count."""
        check_images(images, self.channels, self.REGION)
        if images.shape[2:] != (self.image_size, self.image_size):
            raise ValueError(f"images: expected sides of {self.image_size} pixels, got {tuple(images.shape[2:])}")
        regions = self.positions(self.layers(images).flatten(2).transpose(1, 2))
        mask = masks.length_mask(lengths, regions.shape[1]).to(regions.device)
        check_lengths(lengths, len(regions))
        if can_read(mask) and not bool(mask.any(-1).all()):
            raise ValueError("lengths: expected at least one region in every image, got a length of 0")
        final = (regions * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return Memory(regions, final, mask)


def region_maps(model: Seq2Seq, batches: Iterable[Batch]) -> list[Tensor]:
    """The attention of each caption's words to the regions while the model is given the true caption.

    Returns one map ``(T, R)`` for each image, with a row for each word; ``alignment_error`` scores them against
    ``Drawings.links``. The model is run in evaluation mode and left in the mode it was in.

    Raises:
        ValueError: if the decoder is not one module with attention weights.
    """
    region_weights: list[Tensor] = []
    for batch in batches:
        with torch.no_grad(), evaluating(model), capture_attention(model.decoder) as maps:
            model(batch.source, batch.source_lengths, batch.target_in)
        if list(maps) != [""]:
            raise ValueError(f"model: expected a decoder with attention weights, got {kind(model.decoder)}")
        (weights,) = maps[""]
        lengths = batch.target_lengths.tolist()
        region_weights += [rows[0, : length - 1] for rows, length in zip(weights, lengths, strict=True)]
    return region_weights


def _layer(channels: int, out_channels: int, width: int) -> list[nn.Module]:
    """A convolution that halves the sides. Without batch norm, the one paper drowns what little is drawn on it."""
    convolution = nn.Conv2d(channels, out_channels, width, stride=2, padding=width // 2, bias=False)
    return [convolution, nn.BatchNorm2d(out_channels), nn.ReLU()]
