"""What decoders share: a state between two tokens, words embedded, a first state, and a read-out."""

from typing import Protocol, Self

import torch
from torch import Tensor, nn

from attn_core.contract import check_dropout, check_integer, check_tokens, kind
from attn_core.seq2seq.encoder import Memory, embedding


class State(Protocol):
    """A decoder's state between two tokens."""

    @property
    def weights(self) -> Tensor | None:
        """The attention ``(B, S)`` that the last step paid to the source; None in a decoder without attention."""

    def select(self, rows: Tensor) -> Self:
        """The state with these rows of the batch, in this order, repeats allowed."""


class Decoder(nn.Module):
    """The beginning of every decoder: embedded target words, and a first state made of the encoder's final one.

    Source: Bahdanau et al. 2015, appendix A.2.2, whose first state is made of the backward state alone.
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
        super().__init__()
        sizes = {"vocab_size": vocab_size, "embed_dim": embed_dim, "hidden_dim": hidden_dim, "memory_dim": memory_dim}
        for name, size in (sizes | {"num_layers": num_layers}).items():
            check_integer(name, size)
        check_dropout(dropout)
        self.vocab_size, self.memory_dim = vocab_size, memory_dim
        self.embedding = embedding(vocab_size, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.first = nn.Linear(memory_dim, num_layers * hidden_dim)

    def _first_hidden(self, memory: Memory) -> Tensor:
        self._check_memory(memory)
        return torch.tanh(self.first(memory.final))

    def _embed_step(self, tokens: Tensor, batch: int) -> Tensor:
        check_tokens("tokens", tokens, self.vocab_size, axes=1, batch=batch)
        return self.dropout(self.embedding(tokens))

    def _embed_target(self, target: Tensor, memory: Memory) -> Tensor:
        self._check_memory(memory)
        check_tokens("target", target, self.vocab_size, axes=2, batch=memory.mask.shape[0])
        return self.dropout(self.embedding(target))

    def _check_memory(self, memory: Memory) -> None:
        size = self.memory_dim
        if not isinstance(memory, Memory) or memory.states.shape[-1] != size or memory.final.shape[-1] != size:
            got = f"one of size {memory.final.shape[-1]}" if isinstance(memory, Memory) else kind(memory)
            raise ValueError(f"memory: expected an encoder's Memory of size {size}, got {got}")


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
