"""Bahdanau's decoder: the state before a word asks the source what to write."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attn_core.capture import is_captured, record
from attn_core.mechanisms.dense import attend
from attn_core.scores import Additive
from attn_core.seq2seq.decoder import Decoder, DeepOutput
from attn_core.seq2seq.encoder import Memory


class BahdanauState(NamedTuple):
    """What a step needs, and what the last one looked at.

    ``hidden`` has one ``(B, D)`` per layer, the bottom one first; ``keys (B, S, A)`` are the memory's, prepared once;
    ``weights (B, S)`` the last step's.
    """

    hidden: tuple[Tensor, ...]
    memory: Memory
    keys: Tensor
    weights: Tensor

    def select(self, rows: Tensor) -> "BahdanauState":
        """These rows of the batch."""
        hidden = tuple(layer[rows] for layer in self.hidden)
        return BahdanauState(hidden, self.memory.select(rows), self.keys[rows], self.weights[rows])


Look = Callable[[BahdanauState], tuple[Tensor, Tensor]]


class BahdanauDecoder(Decoder):
    """A GRU decoder that asks the source anew at every step, through additive attention.

    The query is the *previous* hidden state, the top layer's; the context that it finds enters the GRU beside the last
    token. ``capture_attention`` collects its weights, ``(B, 1, T, S)`` for a whole target, ``(B, 1, 1, S)`` for a step.

    Source: Bahdanau et al. 2015, section 3.1 and appendix A.2.2. Two things differ: the read-out sees the new state,
    where the paper's sees the last one, and the GRU is PyTorch's, which applies the reset gate after the product.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embed_dim: int,
        hidden_dim: int,
        memory_dim: int,
        num_layers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            vocab_size,
            embed_dim=embed_dim,
            hidden_dim=hidden_dim,
            memory_dim=memory_dim,
            num_layers=num_layers,
            dropout=dropout,
        )
        self.score = Additive(hidden_dim, memory_dim, hidden_dim)
        inputs = [embed_dim + memory_dim] + [hidden_dim] * (num_layers - 1)
        self.cells = nn.ModuleList(nn.GRUCell(size, hidden_dim) for size in inputs)
        self.output = DeepOutput(vocab_size, hidden_dim + memory_dim + embed_dim, 2 * embed_dim)

    def init_state(self, memory: Memory) -> BahdanauState:
        """The state before the first token; the keys are prepared here, once."""
        hidden = self._first_hidden(memory).chunk(len(self.cells), dim=-1)
        keys = self.score.project_keys(memory.states)
        return BahdanauState(hidden, memory, keys, memory.states.new_zeros(memory.mask.shape))

    def step(self, tokens: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
        """Read ``tokens (B,)``; give the logits ``(B, V)`` of the next ones, and the next state."""
        embedded = self._embed_step(tokens, len(state.memory.mask))
        context, weights = self._attend(state)
        state = self._read(embedded, context, weights, state)
        if is_captured(self):
            record(self, weights[:, None, None])
        return self.output(state.hidden[-1], context, embedded), state

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """Logits ``(B, T, V)`` for a whole ``target (B, T)``, each from the true tokens before it."""
        logits, weights = self._through(memory, target, self._attend)
        if is_captured(self):
            record(self, weights[:, None])
        return logits

    def _through(self, memory: Memory, target: Tensor, look: Look) -> tuple[Tensor, Tensor]:
        """Logits of a whole target, and the weights ``(B, T, S)`` of what ``look`` finds for each state."""
        embedded = self._embed_target(target, memory)
        state = self.init_state(memory)
        hiddens, contexts, maps = [], [], []
        for token in embedded.unbind(1):
            context, weights = look(state)
            state = self._read(token, context, weights, state)
            hiddens.append(state.hidden[-1])
            contexts.append(context)
            maps.append(weights)
        # One product over the whole target is far quicker than one per step.
        logits = self.output(torch.stack(hiddens, dim=1), torch.stack(contexts, dim=1), embedded)
        return logits, torch.stack(maps, dim=1)

    def _attend(self, state: BahdanauState) -> tuple[Tensor, Tensor]:
        """The context ``(B, C)`` that the top layer's state asks for, and the weights ``(B, S)`` behind it."""
        scores = self.score.score(state.hidden[-1][:, None], state.keys)
        context, weights = attend(scores, state.memory.states, state.memory.mask[:, None])
        return context[:, 0], weights[:, 0]

    def _read(self, embedded: Tensor, context: Tensor, weights: Tensor, state: BahdanauState) -> BahdanauState:
        """The state after the last token ``(B, E)`` and the context ``(B, C)``."""
        below = torch.cat([embedded, context], dim=-1)
        hidden: list[Tensor] = []
        for cell, last in zip(self.cells, state.hidden, strict=True):
            below = cell(self.dropout(below) if hidden else below, last)
            hidden.append(below)
        return BahdanauState(tuple(hidden), state.memory, state.keys, weights)
