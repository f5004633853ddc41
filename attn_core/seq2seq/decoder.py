"""What decoders share: words embedded, a first state, the state between two words, and Bahdanau's read-out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from attn_core.contract import check_dropout, check_integer, check_tokens, kind
from attn_core.seq2seq.encoder import Memory, embedding


class State(Protocol):
    """What the searches need of a model's state between two tokens."""

    @property
    def weights(self) -> Tensor | None:
        """The attention ``(B, S)`` that the last step paid to the source; None in a decoder without attention."""

    def select(self, rows: Tensor) -> Self:
        """The state with these rows of the batch, in this order, repeats allowed."""


@dataclass(frozen=True)
class DecoderState:
    """A decoder's ``State``: ``hidden (B, D)`` of its GRU, what it knows of the source, and its last ``weights``."""

    hidden: Tensor
    memory: Memory
    weights: Tensor | None

    def select(self, rows: Tensor) -> Self:
        """These rows of the batch."""
        chosen: dict[str, Any] = {name: x[rows] for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, memory=self.memory.select(rows), **chosen)


class Decoder(nn.Module, ABC):
    """The base of all decoders. A subclass says how a state begins and how words are read.

    Source: Bahdanau et al. 2015, appendix A.2.2, whose first state is made of the backward state alone.
    """

    def __init__(
        self, vocab_size: int, *, embed_dim: int, hidden_dim: int, memory_dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        sizes = {"vocab_size": vocab_size, "embed_dim": embed_dim, "hidden_dim": hidden_dim, "memory_dim": memory_dim}
        for name, size in sizes.items():
            check_integer(name, size)
        check_dropout(dropout)
        self.vocab_size, self.memory_dim = vocab_size, memory_dim
        self.embedding = embedding(vocab_size, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.first = nn.Linear(memory_dim, hidden_dim)

    @abstractmethod
    def init_state(self, memory: Memory) -> Any:
        """The state before the first token, with whatever can be computed from the source alone."""

    @abstractmethod
    def _read(self, embedded: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits ``(B, T, V)``, one after each of the words ``embedded (B, T, E)``, and the state after the last."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read ``tokens (B,)``; give the logits ``(B, V)`` of the next ones, and the next state."""
        check_tokens("tokens", tokens, self.vocab_size, axes=1, batch=len(state.hidden))
        logits, state = self._read(self.dropout(self.embedding(tokens))[:, None], state)
        return logits[:, 0], state

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """Logits ``(B, T, V)`` for a whole ``target (B, T)``, each from the true tokens before it."""
        state = self.init_state(memory)
        return self._read(self._embed_target(target, memory), state)[0]

    def _embed_target(self, target: Tensor, memory: Memory) -> Tensor:
        check_tokens("target", target, self.vocab_size, axes=2, batch=memory.mask.shape[0])
        return self.dropout(self.embedding(target))

    def _first_hidden(self, memory: Memory) -> Tensor:
        size = self.memory_dim
        if not isinstance(memory, Memory) or memory.states.shape[-1] != size or memory.final.shape[-1] != size:
            got = f"one of size {memory.final.shape[-1]}" if isinstance(memory, Memory) else kind(memory)
            raise ValueError(f"memory: expected an encoder's Memory of size {size}, got {got}")
        return torch.tanh(self.first(memory.final))


class DeepOutput(nn.Module):
    """From what a decoder knows at a step to the logits of the next token: a maxout layer, then a linear one.

    Source: Bahdanau et al. 2015, appendix A.2.2 (maxout over pairs).
    """

    def __init__(self, vocab_size: int, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(input_dim, 2 * hidden_dim)
        self.logits = nn.Linear(hidden_dim, vocab_size)

    def forward(self, *known: Tensor) -> Tensor:
        """Logits ``(…, V)`` from tensors ``(…, ·)`` whose sizes add up to ``input_dim``."""
        pairs = self.hidden(torch.cat(known, dim=-1)).unflatten(-1, (-1, 2))
        return self.logits(pairs.amax(-1))
