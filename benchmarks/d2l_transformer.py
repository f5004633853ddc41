"""A Transformer translator built from d2l's classes; `d2l_translator.train_step` trains it as d2l does.

d2l's package has the encoder, and the parts of a decoder; the decoder itself stands in its book. Here it is written
anew from the published architecture. The argument `d2l` is the module that `attn_book.companion.load_d2l()` gives.

Source: Zhang et al., Dive into Deep Learning 0.17 (the architecture); Vaswani et al. 2017, figure 1.
"""

import math
from types import ModuleType

import torch
from torch import Tensor, nn


class DecoderBlock(nn.Module):
    """Causal self-attention, attention to the encoder's output, a feed-forward network; post-norm."""

    def __init__(self, d2l: ModuleType, width: int, *, hidden_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.cross = (d2l.MultiHeadAttention(*[width] * 4, num_heads, dropout) for _ in range(2))
        self.feed_forward = d2l.PositionWiseFFN(width, hidden_dim, width)
        self.norms = nn.ModuleList(d2l.AddNorm([width], dropout) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, seen: Tensor, lengths: Tensor) -> Tensor:
        """`x (B, T, C)` to the same shape; each query sees `seen (B, T)` tokens of x, and `lengths (B,)` of memory."""
        x = self.norms[0](x, self.attention(x, x, x, seen))
        x = self.norms[1](x, self.cross(x, memory, memory, lengths))
        return self.norms[2](x, self.feed_forward(x))


class TransformerDecoder(nn.Module):
    """Reads a whole target at once, as in training. The interface is d2l's: `init_state`, then tokens and the state."""

    def __init__(
        self,
        d2l: ModuleType,
        vocab_size: int,
        width: int,
        *,
        hidden_dim: int,
        num_heads: int,
        num_layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.scale = math.sqrt(width)
        self.embedding = nn.Embedding(vocab_size, width)
        self.positions = d2l.PositionalEncoding(width, dropout)
        self.blocks = nn.ModuleList(
            DecoderBlock(d2l, width, hidden_dim=hidden_dim, num_heads=num_heads, dropout=dropout)
            for _ in range(num_layers)
        )
        self.dense = nn.Linear(width, vocab_size)

    def init_state(self, encoder_outputs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's output (B, S, C) and the lengths (B,)."""
        return encoder_outputs, lengths

    def forward(self, tokens: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits (B, T, V) of the tokens after these, and the state as it was."""
        x = self.positions(self.embedding(tokens) * self.scale)
        seen = torch.arange(1, tokens.shape[1] + 1, device=tokens.device).repeat(tokens.shape[0], 1)
        for block in self.blocks:
            x = block(x, state[0], seen, state[1])
        return self.dense(x), state


def translator(
    d2l: ModuleType,
    source_size: int,
    target_size: int,
    *,
    width: int = 32,
    hidden_dim: int = 64,
    num_heads: int = 4,
    num_layers: int = 2,
    dropout: float = 0.1,
) -> nn.Module:
    """An untrained model for two vocabularies of these sizes, its weights drawn as d2l's training loop draws them."""
    model: nn.Module = d2l.EncoderDecoder(
        d2l.TransformerEncoder(
            source_size, width, width, width, width, [width], width, hidden_dim, num_heads, num_layers, dropout
        ),
        TransformerDecoder(
            d2l,
            target_size,
            width,
            hidden_dim=hidden_dim,
            num_heads=num_heads,
            num_layers=num_layers,
            dropout=dropout,
        ),
    )
    for module in model.modules():
        if type(module) is nn.Linear:
            nn.init.xavier_uniform_(module.weight)
    return model
