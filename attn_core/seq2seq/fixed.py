"""The decoder without attention: one vector for the whole source."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from attn_core.seq2seq.decoder import Decoder, DeepOutput
from attn_core.seq2seq.encoder import Memory


class FixedContextState(NamedTuple):
    """``hidden (B, D)`` and the one ``context (B, C)`` that serves every step."""

    hidden: Tensor
    context: Tensor

    @property
    def weights(self) -> None:
        """No attention, no weights."""
        return None

    def select(self, rows: Tensor) -> "FixedContextState":
        """These rows of the batch."""
        return FixedContextState(self.hidden[rows], self.context[rows])


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

    def init_state(self, memory: Memory) -> FixedContextState:
        """The state before the first token."""
        return FixedContextState(self._first_hidden(memory), memory.final)

    def step(self, tokens: Tensor, state: FixedContextState) -> tuple[Tensor, FixedContextState]:
        """Read ``tokens (B,)``; give the logits ``(B, V)`` of the next ones, and the next state."""
        embedded = self._embed_step(tokens, len(state.hidden))
        logits, hidden = self._run(embedded[:, None], state)
        return logits[:, 0], FixedContextState(hidden, state.context)

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """Logits ``(B, T, V)`` for a whole ``target (B, T)``, each from the true tokens before it."""
        return self._run(self._embed_target(target, memory), self.init_state(memory))[0]

    def _run(self, embedded: Tensor, state: FixedContextState) -> tuple[Tensor, Tensor]:
        context = state.context[:, None].expand(-1, embedded.shape[1], -1)
        outputs, hidden = self.rnn(torch.cat([embedded, context], dim=-1), state.hidden[None].contiguous())
        return self.output(outputs, context, embedded), hidden[0]
