"""The heads with which an encoder is pretrained and tuned."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import INTEGERS, can_read, check_integer, kind
from attn_core.transformer import SegmentEncoder


class ClassHead(nn.Module):
    """Vectors ``(B, C)`` to logits ``(B, classes)``: a dense layer, tanh, and a linear layer.

    Raises:
        ValueError: if a size is below 1.

    Source: Devlin et al. 2018, section 3.1, task 2, and 3.2 (the dense layer and tanh as in the authors' program).
    """

    def __init__(self, model_dim: int, classes: int) -> None:
        super().__init__()
        check_integer("model_dim", model_dim)
        check_integer("classes", classes)
        self.dense = nn.Linear(model_dim, model_dim)
        self.out = nn.Linear(model_dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of each class."""
        return self.out(torch.tanh(self.dense(x)))


class MaskedLanguageModel(nn.Module):
    """An encoder with a head that restores hidden tokens: linear layer, GELU, layer norm, the embedding's own matrix.

    Source: Devlin et al. 2018, section 3.1, task 1 (the head as in the authors' program).
    """

    def __init__(self, encoder: SegmentEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.dense = nn.Linear(encoder.config.model_dim, encoder.config.model_dim)
        self.norm = nn.LayerNorm(encoder.config.model_dim)
        self.bias = nn.Parameter(torch.zeros(encoder.config.vocab_size))

    def forward(self, tokens: Tensor, lengths: Tensor, segments: Tensor, hidden: Tensor) -> Tensor:
        """Logits ``(N, V)`` of the N tokens where ``hidden (B, T)`` is True, row by row; the rest as the encoder."""
        return self.word_logits(self.encoder(tokens, lengths, segments)[_checked(hidden, tokens)])

    def word_logits(self, x: Tensor) -> Tensor:
        """The encoder's vectors ``(…, C)`` to logits ``(…, V)`` of the tokens there.

        For all tokens of a text this costs more than a small encoder itself, so ask for the hidden ones alone.
        """
        return self.encoder.embedding.logits(self.norm(functional.gelu(self.dense(x)))) + self.bias


class NextSentenceModel(MaskedLanguageModel):
    """A ``MaskedLanguageModel`` that also predicts from <cls> whether the second part follows the first.

    Source: Devlin et al. 2018, section 3.1.
    """

    def __init__(self, encoder: SegmentEncoder) -> None:
        super().__init__(encoder)
        self.follows = ClassHead(encoder.config.model_dim, 2)

    def both(self, tokens: Tensor, lengths: Tensor, segments: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens' logits ``(N, V)`` as ``forward`` gives them, and ``(B, 2)``: does not follow, follows."""
        x = self.encoder(tokens, lengths, segments)
        return self.word_logits(x[_checked(hidden, tokens)]), self.follows(x[:, 0])


def _checked(hidden: Tensor, tokens: Tensor) -> Tensor:
    if not isinstance(hidden, Tensor) or hidden.dtype != torch.bool or hidden.shape != tokens.shape:
        raise ValueError(f"hidden: expected a boolean tensor of shape {tuple(tokens.shape)}, got {kind(hidden)}")
    return hidden


class Classifier(nn.Module):
    """An encoder and a new head that predicts one of ``classes`` from the vector of one token.

    Raises:
        ValueError: if ``classes`` is below 1.

    Source: Devlin et al. 2018, section 3.2.
    """

    def __init__(self, encoder: SegmentEncoder, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = ClassHead(encoder.config.model_dim, classes)

    def forward(self, tokens: Tensor, lengths: Tensor, segments: Tensor, at: Tensor) -> Tensor:
        """Logits ``(B, classes)`` from the vectors at positions ``at (B,)``, 0 for <cls>; the rest as the encoder."""
        x = self.encoder(tokens, lengths, segments)
        if not isinstance(at, Tensor) or at.dtype not in INTEGERS or at.shape != x.shape[:1]:
            raise ValueError(f"at: expected integers of shape ({x.shape[0]},), got {kind(at)}")
        if can_read(at) and not 0 <= int(at.min()) <= int(at.max()) < x.shape[1]:
            raise ValueError(f"at: expected positions from 0 to {x.shape[1] - 1}, got {at.tolist()}")
        return self.head(x[torch.arange(x.shape[0], device=x.device), at])


def tuned_from(encoder: SegmentEncoder, classes: int) -> Classifier:
    """A classifier over a copy of a pretrained encoder, with all parameters trainable."""
    return Classifier(copy.deepcopy(encoder).requires_grad_(True), classes)


def frozen_from(encoder: SegmentEncoder, classes: int) -> Classifier:
    """A classifier over a copy of a pretrained encoder, with only the head trainable."""
    model = tuned_from(encoder, classes)
    model.encoder.requires_grad_(False)
    return model
