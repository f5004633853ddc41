"""A decoder that attends to the source with several heads."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attn_core.multi_head import MultiHeadAttention
from attn_core.seq2seq.decoder import Decoder, DecoderState
from attn_core.seq2seq.encoder import Memory


@dataclass(frozen=True)
class MultiHeadState(DecoderState):
    """Also the source's projected ``keys`` and ``values`` ``(B, G, S, head_dim)``; ``weights`` is the heads' mean."""

    keys: Tensor
    values: Tensor


class MultiHeadDecoder(Decoder):
    """``LuongDecoder`` with ``MultiHeadAttention`` in the place of a score.

    ``capture_attention`` collects the weights of each head under the name ``attention``.

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
        hidden = self._first_hidden(memory)
        weights = memory.states.new_zeros(memory.mask.shape)
        return MultiHeadState(hidden, memory, weights, *self.attention.project_kv(memory.states))

    def _read(self, embedded: Tensor, state: MultiHeadState) -> tuple[Tensor, MultiHeadState]:
        queries, hidden = self.rnn(embedded, state.hidden[None].contiguous())
        mask = state.memory.mask[:, None, None]
        context, weights = self.attention.attend_with_weights(queries, state.keys, state.values, mask=mask)
        return self._read_out(context, queries), replace(state, hidden=hidden[0], weights=weights[:, :, -1].mean(1))

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """As in ``Decoder``, but no weights are kept, so the mechanism may take its fast path."""
        first = self._first_hidden(memory)
        queries, _ = self.rnn(self._embed_target(target, memory), first[None])
        return self._read_out(self.attention(queries, memory.states, mask=memory.mask[:, None, None]), queries)

    def _read_out(self, context: Tensor, queries: Tensor) -> Tensor:
        return self.logits(self.dropout(torch.tanh(self.attentional(torch.cat([context, queries], dim=-1)))))
