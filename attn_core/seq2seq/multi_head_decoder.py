"""A decoder whose words ask the source through several heads."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from attn_core.multi_head import MultiHeadAttention
from attn_core.seq2seq.decoder import Decoder
from attn_core.seq2seq.encoder import Memory


class MultiHeadState(NamedTuple):
    """Between two tokens: ``hidden (B, D)``, the source's mask ``(B, S)``, its projected ``keys`` and ``values``
    ``(B, G, S, head_dim)``, and the last ``weights (B, S)``, the mean of the heads.
    """

    hidden: Tensor
    mask: Tensor
    keys: Tensor
    values: Tensor
    weights: Tensor

    def select(self, rows: Tensor) -> "MultiHeadState":
        """These rows of the batch."""
        return MultiHeadState(*(x[rows] for x in self))


class MultiHeadDecoder(Decoder):
    """A GRU decoder with multi-head attention: ``LuongDecoder`` with ``MultiHeadAttention`` in the score's place.

    The GRU reads the target; each of its states is a query to the encoder's states, and what the heads find goes with
    the state to the read-out, tanh(W [context; state]). ``capture_attention`` collects the weights of each head under
    the name ``attention``.

    Source: Luong et al. 2015, section 3 (the order of a step); Vaswani et al. 2017, section 3.2.2 (heads).
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embed_dim: int,
        hidden_dim: int,
        memory_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(vocab_size, embed_dim=embed_dim, hidden_dim=hidden_dim, memory_dim=memory_dim, dropout=dropout)
        self.attention = MultiHeadAttention(hidden_dim, num_heads, num_kv_heads=num_kv_heads, key_dim=memory_dim)
        self.rnn = nn.GRU(embed_dim, hidden_dim, batch_first=True)
        self.attentional = nn.Linear(2 * hidden_dim, hidden_dim, bias=False)
        self.logits = nn.Linear(hidden_dim, vocab_size)

    def init_state(self, memory: Memory) -> MultiHeadState:
        """The state before the first token; the source is projected here, once."""
        keys, values = self.attention.project_kv(memory.states)
        weights = memory.states.new_zeros(memory.mask.shape)
        return MultiHeadState(self._first_hidden(memory), memory.mask, keys, values, weights)

    def step(self, tokens: Tensor, state: MultiHeadState) -> tuple[Tensor, MultiHeadState]:
        """Read ``tokens (B,)``; give the logits ``(B, V)`` of the next ones, and the next state."""
        embedded = self._embed_step(tokens, state.mask.shape[0])
        queries, hidden = self.rnn(embedded[:, None], state.hidden[None].contiguous())
        context, weights = self.attention.attend_with_weights(
            queries, state.keys, state.values, mask=state.mask[:, None, None]
        )
        return self._read_out(context, queries)[:, 0], state._replace(
            hidden=hidden[0], weights=weights[:, :, 0].mean(1)
        )

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """Logits ``(B, T, V)`` for a whole ``target (B, T)``, each from the true tokens before it."""
        embedded = self._embed_target(target, memory)
        queries, _ = self.rnn(embedded, self._first_hidden(memory)[None])
        return self._read_out(self.attention(queries, memory.states, mask=memory.mask[:, None, None]), queries)

    def _read_out(self, context: Tensor, queries: Tensor) -> Tensor:
        return self.logits(self.dropout(torch.tanh(self.attentional(torch.cat([context, queries], dim=-1)))))
