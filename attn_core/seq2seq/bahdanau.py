"""Bahdanau's decoder: before it writes a word, its state asks the source what to write."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attn_core.capture import is_captured, record
from attn_core.mechanisms.dense import attend
from attn_core.scores import Additive
from attn_core.seq2seq.decoder import Decoder, DecoderState, DeepOutput
from attn_core.seq2seq.encoder import Memory


@dataclass(frozen=True)
class BahdanauState(DecoderState):
    """Also the memory's ``keys (B, S, A)``, prepared once."""

    keys: Tensor


Look = Callable[[BahdanauState], tuple[Tensor, Tensor]]


class BahdanauDecoder(Decoder):
    """A GRU decoder that asks the source anew at every step, through additive attention.

    The query is the *previous* hidden state; the context that it finds enters the GRU beside the last token.
    ``capture_attention`` collects its weights, ``(B, 1, T, S)`` for a whole target, ``(B, 1, 1, S)`` for a step.

    Source: Bahdanau et al. 2015, section 3.1 and appendix A.2.2. Two things differ: the read-out sees the new state,
    where the paper's sees the last one, and the GRU is PyTorch's, which applies the reset gate after the product.
    """

    def __init__(
        self, vocab_size: int, *, embed_dim: int, hidden_dim: int, memory_dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__(vocab_size, embed_dim=embed_dim, hidden_dim=hidden_dim, memory_dim=memory_dim, dropout=dropout)
        self.score = Additive(hidden_dim, memory_dim, hidden_dim)
        # A list of one, because recorded parameters are named after it.
        self.cells = nn.ModuleList([nn.GRUCell(embed_dim + memory_dim, hidden_dim)])
        self.output = DeepOutput(vocab_size, hidden_dim + memory_dim + embed_dim, 2 * embed_dim)

    def init_state(self, memory: Memory) -> BahdanauState:
        """The state before the first token; the keys are prepared here, once."""
        hidden = self._first_hidden(memory)
        weights = memory.states.new_zeros(memory.mask.shape)
        return BahdanauState(hidden, memory, weights, self.score.project_keys(memory.states))

    def _read(self, embedded: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
        logits, weights, state = self._through(embedded, state, self._attend)
        if is_captured(self):
            record(self, weights[:, None])
        return logits, state

    def _through(self, embedded: Tensor, state: BahdanauState, look: Look) -> tuple[Tensor, Tensor, BahdanauState]:
        """Logits ``(B, T, V)``, the weights ``(B, T, S)`` of what ``look`` finds for each state, and the last state."""
        hiddens, contexts, maps = [], [], []
        for token in embedded.unbind(1):
            context, weights = look(state)
            hidden = self.cells[0](torch.cat([token, context], dim=-1), state.hidden)
            state = replace(state, hidden=hidden, weights=weights)
            hiddens.append(hidden)
            contexts.append(context)
            maps.append(weights)
        # One product over the whole target is far quicker than one for each step.
        logits = self.output(torch.stack(hiddens, dim=1), torch.stack(contexts, dim=1), embedded)
        return logits, torch.stack(maps, dim=1), state

    def _attend(self, state: BahdanauState) -> tuple[Tensor, Tensor]:
        """The context ``(B, C)`` that the state asks for, and the weights ``(B, S)`` with which it was summed."""
        scores = self.score.score(state.hidden[:, None], state.keys)
        context, weights = attend(scores, state.memory.states, state.memory.mask[:, None])
        return context[:, 0], weights[:, 0]
