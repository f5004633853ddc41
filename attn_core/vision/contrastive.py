"""A pair of encoders, one for images and one for captions, whose vectors meet on one sphere."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import check_integer, is_number, shown
from attn_core.data import Batch, Vocab
from attn_core.data.batches import pad
from attn_core.decode.hypothesis import evaluating
from attn_core.train.losses import needs_whole_batch
from attn_core.transformer import TransformerEncoder
from attn_core.vision.patches import VisionTransformer

_HIGHEST = math.log(100.0)


class ContrastivePair(nn.Module):
    """Images and captions as unit vectors of one space, in which what belongs together lies close together.

    Each encoder's vector, for captions the one of the last token (<eos>), is mapped to ``shared_dim`` entries without
    a bias and brought to length 1. Logits are the cosines, divided by a learned temperature, which starts at
    ``temperature`` and is kept from falling below .01. ``sigmoid_loss`` needs a learned ``bias`` that is added to them.

    Raises:
        ValueError: if ``shared_dim`` is below 1, ``temperature`` not in [.01, ∞), or ``bias`` neither None nor finite;
            in use, as the encoders.

    Source: Radford et al. 2021, sections 2.3 to 2.5; Zhai et al. 2023 (bias).
    """

    def __init__(
        self,
        images: VisionTransformer,
        texts: TransformerEncoder,
        *,
        shared_dim: int,
        temperature: float = 0.07,
        bias: float | None = None,
    ) -> None:
        super().__init__()
        check_integer("shared_dim", shared_dim)
        if not (is_number(temperature) and math.isfinite(temperature) and temperature >= 0.01):
            raise ValueError(f"temperature: expected a finite number of at least .01, got {shown(temperature)}")
        if bias is not None and not (is_number(bias) and math.isfinite(bias)):
            raise ValueError(f"bias: expected None or a finite number, got {shown(bias)}")
        self.images, self.texts = images, texts
        self.image_projection = nn.Linear(images.patches.model_dim, shared_dim, bias=False)
        self.text_projection = nn.Linear(texts.config.model_dim, shared_dim, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))
        self.bias = None if bias is None else nn.Parameter(torch.tensor(float(bias)))

    def embed_images(self, images: Tensor) -> Tensor:
        """Unit vectors ``(B, shared_dim)`` of ``images (B, channels, H, W)``."""
        return functional.normalize(self.image_projection(self.images(images)), dim=-1)

    def embed_texts(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Unit vectors ``(B, shared_dim)`` of ``tokens (B, T)``, the first ``lengths (B,)`` true, <eos> the last.

        Raises:
            ValueError: as the encoder, or a text without a token.
        """
        x = self.texts(tokens, lengths)
        if not torch.compiler.is_compiling() and int(lengths.min()) < 1:  # it would read the padding's vector
            raise ValueError(f"lengths: expected at least one token in each text, got {shown(lengths.tolist())}")
        last = x[torch.arange(x.shape[0], device=x.device), lengths.to(x.device) - 1]
        return functional.normalize(self.text_projection(last), dim=-1)

    def forward(self, images: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Logits ``(B, K)`` of each of B images with each of K texts."""
        with torch.no_grad():  # the parameter itself: a clamped copy would pass no gradient back, and stay
            self.log_scale.clamp_(max=_HIGHEST)
        logits = self.log_scale.exp() * self.embed_images(images) @ self.embed_texts(tokens, lengths).T
        return logits if self.bias is None else logits + self.bias


@torch.no_grad()
def zero_shot(model: ContrastivePair, images: Tensor, captions: Sequence[Sequence[str]], vocab: Vocab) -> Tensor:
    """The number of the caption that fits each image best, ``(B,)``: classes named by words, without an example.

    The model is run in evaluation mode and left in the mode it was in.

    Raises:
        ValueError: if a caption has no words, or the images have another kind or size.

    Source: Radford et al. 2021, section 3.1.2.
    """
    rows = [torch.tensor([*vocab.encode(words), Vocab.EOS]) for words in captions]
    tokens = pad(rows).to(images.device)
    lengths = torch.tensor([len(row) for row in rows], device=images.device)
    with evaluating(model):
        return model(images, tokens, lengths).argmax(-1)


def contrastive_loss(logits: Tensor) -> Tensor:
    """How well each image finds its text among all, and each text its image: the mean of two cross-entropies, in nats.

    Shapes: ``logits (B, B)``, row i an image and column i its own text; returns a scalar.

    Source: Radford et al. 2021, figure 3; van den Oord et al. 2018.
    """
    own = torch.arange(len(logits), device=logits.device)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (functional.cross_entropy(logits, own) + functional.cross_entropy(logits.T, own)) / 2


def sigmoid_loss(logits: Tensor) -> Tensor:
    """Whether each image and each text belong together, asked of every pair by itself: binary cross-entropies, in nats.

    Shapes: ``logits (B, B)``, row i an image and column i its own text; returns their sum divided by B, a scalar.

    Source: Zhai et al. 2023, section 3.2 (SigLIP).
    """
    own = torch.eye(len(logits), device=logits.device)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.binary_cross_entropy_with_logits(logits, own.to(logits), reduction="sum") / len(logits)


@needs_whole_batch
def pair_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
    """The contrastive loss of images and their captions, times the number of pairs, and that number: for ``fit``.

    The other pairs of the batch are the negatives, so ``fit`` refuses to split a batch for it.
    """
    logits = model(batch.source, batch.target_out, batch.target_lengths)
    return len(batch) * contrastive_loss(logits), len(batch)


@needs_whole_batch
def sigmoid_pair_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
    """As ``pair_loss``, with ``sigmoid_loss``."""
    logits = model(batch.source, batch.target_out, batch.target_lengths)
    return len(batch) * sigmoid_loss(logits), len(batch)
