"""An encoder that knows two parts of a text, as BERT's."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attn_core import masks
from attn_core.contract import check_lengths, check_tokens, kind
from attn_core.mechanisms.dense import Dense
from attn_core.transformer.config import TransformerConfig
from attn_core.transformer.layers import Mechanism
from attn_core.transformer.models import TransformerEncoder


class SegmentEncoder(TransformerEncoder):
    """A ``TransformerEncoder`` that adds to each token's vector one for its part of the text, 0 or 1.

    With ``norm_embedding`` the sum of the three embeddings is normalised before the first layer, as in BERT's published
    parameters (dropout acts before this norm, BERT's after it). The other arguments, and the errors, are those of
    ``TransformerEncoder``.

    Source: Devlin et al. 2018, section 3 and figure 2.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        mechanism: Callable[[], Mechanism] = Dense,
        positions: Callable[[], nn.Module] | None = None,
        norm_embedding: bool = False,
    ) -> None:
        super().__init__(config, mechanism=mechanism, positions=positions)
        self.segments = nn.Embedding(2, config.model_dim)
        self.norm = config.norm(config.model_dim) if norm_embedding else nn.Identity()

    def forward(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """Vectors ``(B, T, C)`` of ``tokens (B, T)``, of which the first ``lengths (B,)`` count.

        Without ``segments (B, T)`` the text is one part, 0.
        """
        return self.states(tokens, lengths, segments)[-1]

    def states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        """The first layer's input and each layer's output, ``(B, T, C)``; the last one is what ``forward`` gives."""
        check_tokens("tokens", tokens, self.config.vocab_size, axes=2)
        if segments is None:
            segments = torch.zeros_like(tokens)
        check_tokens("segments", segments, 2, axes=2)
        if segments.shape != tokens.shape:
            raise ValueError(f"segments: expected the shape of tokens, {tuple(tokens.shape)}, got {kind(segments)}")
        mask = masks.padding(lengths, tokens.shape[1]).to(tokens.device)
        check_lengths(lengths, tokens.shape[0])
        states = [self.norm(self.embedding(tokens) + self.segments(segments))]
        for layer in self.stack.layers:
            states.append(layer(states[-1], mask=mask))
        return [*states[:-1], self.stack.norm(states[-1])]
