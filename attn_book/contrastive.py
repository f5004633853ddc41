"""A pair of encoders, one for images and one for captions, whose vectors meet on one sphere."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_book.data import Batch, Vocab
from attn_book.data.batches import pad
from attn_book.train.losses import needs_whole_batch
from attn_core.contract import accum_dtype, check_integer, check_lengths, is_number, kind, shown
from attn_core.evaluation import evaluating
from attn_core.transformer import TransformerEncoder
from attn_core.vision import VisionTransformer

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
        check_lengths(lengths, x.shape[0], "text")  # of none it would read the padding's vector
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
        ValueError: if there are no captions, one has no words, or the images have another kind or size.

    Source: Radford et al. 2021, section 3.1.2.
    """
    if not len(captions):
        raise ValueError("captions: expected at least one, got none")
    rows = [torch.tensor([*vocab.encode(words), Vocab.EOS]) for words in captions]
    tokens = pad(rows).to(images.device)
    lengths = torch.tensor([len(row) for row in rows], device=images.device)
    with evaluating(model):
        return model(images, tokens, lengths).argmax(-1)


def contrastive_loss(logits: Tensor) -> Tensor:
    """How well each image finds its text among all, and each text its image: the mean of two cross-entropies, in nats.

    Shapes: ``logits (B, B)``, row i an image and column i its own text; returns a scalar.

    Raises:
        ValueError: if the logits are of another shape or kind.

    Source: Radford et al. 2021, figure 3; van den Oord et al. 2018.
    """
    logits = _square(logits)
    own = torch.arange(len(logits), device=logits.device)
    return (functional.cross_entropy(logits, own) + functional.cross_entropy(logits.T, own)) / 2


def sigmoid_loss(logits: Tensor) -> Tensor:
    """Whether each image and each text belong together, asked of every pair by itself: binary cross-entropies, in nats.

    Shapes: ``logits (B, B)``, row i an image and column i its own text; returns their sum divided by B, a scalar.

    Raises:
        ValueError: as ``contrastive_loss``.

    Source: Zhai et al. 2023, section 3.2 (SigLIP).
    """
    logits = _square(logits)
    own = torch.eye(len(logits), device=logits.device, dtype=logits.dtype)
    return functional.binary_cross_entropy_with_logits(logits, own, reduction="sum") / len(logits)


def _square(logits: Tensor) -> Tensor:
    is_floating = isinstance(logits, Tensor) and logits.is_floating_point()
    if not is_floating or logits.dim() != 2 or not 0 < len(logits) == logits.shape[1]:
        raise ValueError(f"logits: expected a floating tensor (B, B), got {kind(logits)}")
    return logits.to(accum_dtype(logits))


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
