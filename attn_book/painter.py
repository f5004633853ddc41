"""A small diffusion transformer that paints a picture from a caption, which it reads by cross-attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.corpus.arrangements import SIDE
from attn_book.data import Vocab
from attn_core.contract import check_integer, check_number, shown
from attn_core.masks import length_mask
from attn_core.multi_head import MultiHeadAttention
from attn_core.transformer import FeedForward, TransformerConfig, TransformerEncoder

FREQUENCIES = 32
"""The time is given to the model as so many sines and as many cosines."""


class PainterBlock(nn.Module):
    """Patches read one another, then the caption, then each passes a feed-forward network: ``(B, N, C)`` to the same.

    The time scales and shifts what enters the first and the last part, and scales what leaves them. ``time (B, 6, C)``
    is the same for all blocks; each adds numbers of its own.

    Source: Peebles and Xie 2023 (adaptive norms); Chen et al. 2024 (PixArt-α: shared ones, and cross-attention).
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(dim, elementwise_affine=False) for _ in range(3))
        self.attention = MultiHeadAttention(dim, num_heads)
        self.cross_attention = MultiHeadAttention(dim, num_heads)
        self.feed_forward = FeedForward(dim, 4 * dim)
        self.time = nn.Parameter(torch.zeros(6, dim))
        nn.init.zeros_(self.cross_attention.out.weight)  # a block begins by not reading the caption

    def forward(self, x: Tensor, time: Tensor, caption: Tensor, mask: Tensor, bias: Tensor | None = None) -> Tensor:
        """``caption (B, T, C)`` holds vectors of tokens; ``mask`` and ``bias`` are those of cross-attention."""
        scale, shift, gate, scale_2, shift_2, gate_2 = (time + self.time).unsqueeze(2).unbind(1)
        x = x + gate * self.attention(self.norms[0](x) * (1 + scale) + shift)
        x = x + self.cross_attention(self.norms[1](x), caption, mask=mask, bias=bias)
        return x + gate_2 * self.feed_forward(self.norms[2](x) * (1 + scale_2) + shift_2)


class Painter(nn.Module):
    """From a noisy picture, its time and a caption to the clean picture, all in patches ``(B, N, 3·P²)``.

    A picture of 32 × 32 pixels has N = (32/P)² patches. The caption passes one encoder layer, and each of the
    ``num_layers`` blocks reads the result.

    Raises:
        ValueError: if a size is not a positive integer, or ``patch_size`` does not divide 32.

    Source: Peebles and Xie 2023; Li and He 2025 (predict the clean picture).
    """

    def __init__(
        self, vocab_size: int, *, dim: int = 96, num_heads: int = 4, num_layers: int = 4, patch_size: int = 4
    ) -> None:
        super().__init__()
        for name, size in {"num_layers": num_layers, "patch_size": patch_size}.items():
            check_integer(name, size)
        if SIDE % patch_size:
            raise ValueError(f"patch_size: expected a number that divides {SIDE}, got {patch_size}")
        self.patch_size, self.num_heads = patch_size, num_heads
        pixels = 3 * patch_size**2
        config = TransformerConfig(
            vocab_size,
            model_dim=dim,
            num_heads=num_heads,
            num_layers=1,
            feed_forward_dim=2 * dim,
            dropout=0.0,
            norm_first=True,
        )
        self.caption = TransformerEncoder(config)
        self.inward = nn.Linear(pixels, dim)
        self.positions = nn.Parameter(0.02 * torch.randn((SIDE // patch_size) ** 2, dim))
        self.time = nn.Sequential(nn.Linear(2 * FREQUENCIES, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU())
        self.modulation = nn.Linear(dim, 6 * dim)
        self.blocks = nn.ModuleList(PainterBlock(dim, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(dim)
        self.outward = nn.Linear(dim, pixels)
        for layer in (self.modulation, self.outward):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self, noisy: Tensor, time: Tensor, captions: Tensor, lengths: Tensor, *, bias: Tensor | None = None
    ) -> Tensor:
        """The clean patches ``(B, N, 3·P²)``, as far as the model can tell.

        ``time (B,)`` goes from 0, where ``noisy`` is noise, to 1, where it is the picture. ``captions (B, T)`` holds
        ids of which the first ``lengths (B,)`` are true. ``bias (B, T)`` is added to every score of a token in every
        block: log 2 doubles its weight beside the others, −∞ hides it.
        """
        rates = torch.exp(-math.log(1000) * torch.arange(FREQUENCIES, device=time.device) / FREQUENCIES)
        angles = 100 * time[:, None] * rates
        waves = torch.cat([angles.sin(), angles.cos()], -1).to(noisy.dtype)
        moment = self.modulation(self.time(waves)).unflatten(-1, (6, -1))
        text = self.caption(captions, lengths)
        mask = length_mask(lengths, captions.shape[1])[:, None, None]
        x = self.inward(noisy) + self.positions
        for block in self.blocks:
            x = block(x, moment, text, mask, None if bias is None else bias[:, None, None])
        return self.outward(self.norm(x))


def to_patches(images: Tensor, patch_size: int) -> Tensor:
    """Images ``(N, 3, 32, 32)`` from 0 to 1 as patches ``(N, n, 3·P²)`` from −1 to 1, row by row."""
    return functional.unfold(2 * images - 1, patch_size, stride=patch_size).transpose(1, 2)


def to_images(patches: Tensor, patch_size: int) -> Tensor:
    """What ``to_patches`` was given, with values outside 0 and 1 cut off."""
    return ((functional.fold(patches.transpose(1, 2), SIDE, patch_size, stride=patch_size) + 1) / 2).clamp(0, 1)


def encode_captions(captions: Iterable[Sequence[str]], ids_of: Mapping[str, int]) -> tuple[Tensor, Tensor]:
    """Ids ``(B, T)`` of each caption after ``BOS``, padded to the longest, and their lengths ``(B,)``.

    Raises:
        ValueError: if a word is not in ``ids_of``.
    """
    rows = []
    for caption in captions:
        unknown = [word for word in caption if word not in ids_of]
        if unknown:
            raise ValueError(f"captions: expected words that the model knows, got {shown(unknown[0])}")
        rows.append([Vocab.BOS, *(ids_of[word] for word in caption)])
    ids = torch.full((len(rows), max(map(len, rows))), Vocab.PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return ids, torch.tensor([len(row) for row in rows])


def flow_loss(
    model: Painter, pictures: Tensor, captions: Tensor, lengths: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """The mean squared error of the velocity ``picture − noise`` that the model's prediction implies.

    ``pictures`` are patches. Noise and picture are mixed at times drawn between 0 and 1, most near the middle. One
    caption in ten is left empty, for guidance.

    Source: Lipman et al. 2023, Liu et al. 2023 (flow matching); Esser et al. 2024 (times); Ho and Salimans 2021
    (empty captions).
    """
    batch = len(pictures)
    noise = torch.randn(pictures.shape, generator=generator)
    time = torch.sigmoid(torch.randn(batch, generator=generator) - 0.4)
    t = time[:, None, None]
    lengths = torch.where(torch.rand(batch, generator=generator) < 0.1, 1, lengths)
    found = model((1 - t) * noise + t * pictures, time, captions, lengths)
    # The velocity that leads from the mixture to a picture is their difference over the time that is left.
    return (((found - pictures) / (1 - t).clamp(min=0.1)) ** 2).mean()


@torch.no_grad()
def paint(
    model: Painter,
    captions: Tensor,
    lengths: Tensor,
    *,
    noise: Tensor,
    steps: int = 20,
    guidance: float = 2.0,
    bias: Tensor | None = None,
    watch: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """Patches ``(B, N, 3·P²)`` from ``noise`` of that shape, in ``steps`` equal steps of time.

    In each step the prediction for no caption is moved by ``guidance`` times the way to that for the caption; 1 is the
    caption alone. Captions and empty ones pass the model together, the captions first. ``watch(step, prediction)`` is
    called with the guided prediction.

    Raises:
        ValueError: if ``steps`` is not a positive integer, or ``guidance`` not a number of at least 0.

    Source: Ho and Salimans 2021 (guidance).
    """
    check_integer("steps", steps)
    check_number("guidance", guidance, at_least=0)
    both, both_lengths = captions.repeat(2, 1), torch.cat([lengths, torch.ones_like(lengths)])
    both_bias = None if bias is None else torch.cat([bias, torch.zeros_like(bias)])
    x = noise
    for step in range(steps):
        time = torch.full((2 * len(x),), step / steps)
        with_words, without = model(x.repeat(2, 1, 1), time, both, both_lengths, bias=both_bias).chunk(2)
        found = without + guidance * (with_words - without)
        x = x + (found - x) / (steps - step)
        if watch is not None:
            watch(step, found)
    return x
