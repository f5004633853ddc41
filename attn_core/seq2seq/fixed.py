"""The decoder without attention: one vector for the whole source."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from attn_core.seq2seq.decoder import Decoder, DecoderState, DeepOutput
from attn_core.seq2seq.encoder import Memory


class FixedContextDecoder(Decoder):
    """A GRU decoder that sees the source through one vector, the encoder's final state, at every step.

    Source: Cho et al. 2014, section 2.2.
    """

    def __init__(
        self, vocab_size: int, *, embed_dim: int, hidden_dim: int, memory_dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__(vocab_size, embed_dim=embed_dim, hidden_dim=hidden_dim, memory_dim=memory_dim, dropout=dropout)
        self.rnn = nn.GRU(embed_dim + memory_dim, hidden_dim, batch_first=True)
        self.output = DeepOutput(vocab_size, hidden_dim + memory_dim + embed_dim, 2 * embed_dim)

    def init_state(self, memory: Memory) -> DecoderState:
        """The state before the first token."""
        return DecoderState(self._first_hidden(memory), memory, weights=None)

    def _read(self, embedded: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        context = state.memory.final[:, None].expand(-1, embedded.shape[1], -1)
        outputs, hidden = self.rnn(torch.cat([embedded, context], dim=-1), state.hidden[None].contiguous())
        return self.output(outputs, context, embedded), replace(state, hidden=hidden[0])
