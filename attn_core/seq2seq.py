"""Sequence to sequence with recurrent networks: an encoder, and decoders without and with attention.

A decoder reads the encoder's ``Memory`` and works one token at a time: ``start(memory)`` gives its first state, and
``step(tokens, state)`` the scores of the next token and the next state. Training runs the same arithmetic over a
whole target at once.
"""

from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attn_core import masks
from attn_core.capture import is_captured, record
from attn_core.contract import check_size, kind
from attn_core.mechanisms.dense import attend
from attn_core.scores import Additive


class Memory(NamedTuple):
    """What an encoder hands to a decoder: ``states (B, S, C)``, ``final (B, C)`` and ``mask (B, S)``."""

    states: Tensor
    final: Tensor
    mask: Tensor


class State(Protocol):
    """A decoder's state between two tokens."""

    @property
    def weights(self) -> Tensor | None:
        """The attention ``(B, S)`` that the last step paid to the source; None in a decoder without attention."""

    def select(self, rows: Tensor) -> Self:
        """The state with these rows of the batch, in this order, repeats allowed."""


class Encoder(nn.Module):
    """A GRU that reads the source one way or both, and stops at each sentence's own end.

    ``hidden_dim`` is the size per direction, so the memory's size C is ``hidden_dim`` one-way and twice that
    two-way. Batches are packed by length: padding is never read, and ``final`` is the state at the last true token
    (forwards) and at the first (backwards).

    Source: Cho et al. 2014, section 2.2; Bahdanau et al. 2015, section 3.2 (both ways).

    Raises:
        ValueError: a size below 1; in use, a source or lengths of another kind or shape, or an empty sentence.
    """

    def __init__(
        self, vocab_size: int, *, embed_dim: int, hidden_dim: int, bidirectional: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_size("vocab_size", vocab_size)
        check_size("embed_dim", embed_dim)
        check_size("hidden_dim", hidden_dim)
        self.embedding = _embedding(vocab_size, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.rnn = nn.GRU(embed_dim, hidden_dim, batch_first=True, bidirectional=bidirectional)
        self.memory_dim = hidden_dim * (2 if bidirectional else 1)

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read ``source (B, S)`` of token ids, each row true up to its entry in ``lengths (B,)``."""
        _check_tokens("source", source, self.embedding.num_embeddings, axes=2)
        mask = masks.valid(lengths, source.shape[1])
        if mask.shape != source.shape:
            raise ValueError(f"lengths: expected shape ({source.shape[0]},), got {tuple(lengths.shape)}")
        if not bool(mask.any(-1).all()):
            raise ValueError("lengths: expected at least one token in every sentence, got a length of 0")
        embedded = self.dropout(self.embedding(source))
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed_states, final = self.rnn(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=source.shape[1])
        return Memory(states, final.transpose(0, 1).flatten(1), mask)


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


class FixedContextDecoder(nn.Module):
    """A GRU decoder that sees the source through one vector, the encoder's final state, at every step.

    Source: Cho et al. 2014, section 2.2.

    Raises:
        ValueError: a size below 1; in use, tokens of another kind or shape.
    """

    def __init__(
        self, vocab_size: int, *, embed_dim: int, hidden_dim: int, memory_dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_size("vocab_size", vocab_size)
        check_size("embed_dim", embed_dim)
        check_size("hidden_dim", hidden_dim)
        check_size("memory_dim", memory_dim)
        self.embedding = _embedding(vocab_size, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.first = nn.Linear(memory_dim, hidden_dim)
        self.rnn = nn.GRU(embed_dim + memory_dim, hidden_dim, batch_first=True)
        self.output = DeepOutput(vocab_size, hidden_dim + memory_dim + embed_dim, 2 * embed_dim)

    def start(self, memory: Memory) -> FixedContextState:
        """The state before the first token."""
        return FixedContextState(torch.tanh(self.first(memory.final)), memory.final)

    def step(self, tokens: Tensor, state: FixedContextState) -> tuple[Tensor, FixedContextState]:
        """Read ``tokens (B,)``; give the logits ``(B, V)`` of the next ones, and the next state."""
        _check_tokens("tokens", tokens, self.embedding.num_embeddings, axes=1, batch=len(state.hidden))
        logits, hidden = self._run(tokens[:, None], state)
        return logits[:, 0], FixedContextState(hidden, state.context)

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """Logits ``(B, T, V)`` for a whole ``target (B, T)``, each from the true tokens before it."""
        _check_tokens("target", target, self.embedding.num_embeddings, axes=2, batch=len(memory.mask))
        return self._run(target, self.start(memory))[0]

    def _run(self, target: Tensor, state: FixedContextState) -> tuple[Tensor, Tensor]:
        embedded = self.dropout(self.embedding(target))
        context = state.context[:, None].expand(-1, target.shape[1], -1)
        outputs, hidden = self.rnn(torch.cat([embedded, context], dim=-1), state.hidden[None].contiguous())
        return self.output(outputs, context, embedded), hidden[0]


class BahdanauState(NamedTuple):
    """``hidden (B, D)``, the memory with its keys prepared once ``(B, S, A)``, and the last ``weights (B, S)``."""

    hidden: Tensor
    memory: Memory
    keys: Tensor
    weights: Tensor

    def select(self, rows: Tensor) -> "BahdanauState":
        """These rows of the batch."""
        memory = Memory(*(part[rows] for part in self.memory))
        return BahdanauState(self.hidden[rows], memory, self.keys[rows], self.weights[rows])


class BahdanauDecoder(nn.Module):
    """A GRU decoder that asks the source anew at every step, through additive attention.

    The query is the *previous* hidden state; the context that it finds enters the GRU beside the last token.
    ``capture_attention`` collects its weights, ``(B, 1, T, S)`` for a whole target, ``(B, 1, 1, S)`` for a step.

    Source: Bahdanau et al. 2015, section 3.1 and appendix A.2.2.

    Raises:
        ValueError: a size below 1; in use, tokens of another kind or shape.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embed_dim: int,
        hidden_dim: int,
        memory_dim: int,
        score_dim: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_size("vocab_size", vocab_size)
        check_size("embed_dim", embed_dim)
        check_size("hidden_dim", hidden_dim)
        check_size("memory_dim", memory_dim)
        self.embedding = _embedding(vocab_size, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.first = nn.Linear(memory_dim, hidden_dim)
        self.score = Additive(hidden_dim, memory_dim, hidden_dim if score_dim is None else score_dim)
        self.cell = nn.GRUCell(embed_dim + memory_dim, hidden_dim)
        self.output = DeepOutput(vocab_size, hidden_dim + memory_dim + embed_dim, 2 * embed_dim)

    def start(self, memory: Memory) -> BahdanauState:
        """The state before the first token; the keys are prepared here, once."""
        hidden = torch.tanh(self.first(memory.final))
        keys = self.score.prepare(memory.states)
        return BahdanauState(hidden, memory, keys, memory.states.new_zeros(memory.mask.shape))

    def step(self, tokens: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
        """Read ``tokens (B,)``; give the logits ``(B, V)`` of the next ones, and the next state."""
        _check_tokens("tokens", tokens, self.embedding.num_embeddings, axes=1, batch=len(state.hidden))
        embedded = self.dropout(self.embedding(tokens))
        context, state = self._advance(embedded, state)
        if is_captured(self):
            record(self, state.weights[:, None, None])
        return self.output(state.hidden, context, embedded), state

    def forward(self, memory: Memory, target: Tensor) -> Tensor:
        """Logits ``(B, T, V)`` for a whole ``target (B, T)``, each from the true tokens before it."""
        _check_tokens("target", target, self.embedding.num_embeddings, axes=2, batch=len(memory.mask))
        embedded = self.dropout(self.embedding(target))
        state = self.start(memory)
        hiddens, contexts, weights = [], [], []
        for token in embedded.unbind(1):
            context, state = self._advance(token, state)
            hiddens.append(state.hidden)
            contexts.append(context)
            weights.append(state.weights)
        if is_captured(self):
            record(self, torch.stack(weights, dim=1)[:, None])
        # One product over the whole target is far quicker than one per step.
        return self.output(torch.stack(hiddens, dim=1), torch.stack(contexts, dim=1), embedded)

    def _advance(self, embedded: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
        memory = state.memory
        scores = self.score.score(state.hidden[:, None], state.keys)
        context, weights = attend(scores, memory.states, memory.mask[:, None])
        hidden = self.cell(torch.cat([embedded, context[:, 0]], dim=-1), state.hidden)
        return context[:, 0], BahdanauState(hidden, memory, state.keys, weights[:, 0])


class Seq2Seq(nn.Module):
    """An encoder and a decoder, trained together.

    Source: Sutskever et al. 2014; Cho et al. 2014.
    """

    def __init__(self, encoder: Encoder, decoder: FixedContextDecoder | BahdanauDecoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits ``(B, T, V)``: ``source (B, S)`` with ``lengths (B,)``, ``target (B, T)`` beginning with <bos>."""
        return self.decoder(self.encoder(source, lengths), target)

    def start(self, source: Tensor, lengths: Tensor) -> State:
        """Read the source; give the decoder's state before the first token."""
        return self.decoder.start(self.encoder(source, lengths))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, State]:
        """One step of the decoder: logits ``(B, V)`` after ``tokens (B,)``, and the next of its own states."""
        return self.decoder.step(tokens, state)


def _embedding(vocab_size: int, embed_dim: int) -> nn.Embedding:
    """An embedding that starts small.

    PyTorch starts embeddings at a standard deviation of 1, ten times the states of a new GRU; attention then found
    the source words far later, or not at all (DECISIONS.md has the numbers).
    """
    embedding = nn.Embedding(vocab_size, embed_dim)
    nn.init.normal_(embedding.weight, std=0.1)
    return embedding


def _check_tokens(name: str, tokens: Tensor, vocab_size: int, *, axes: int, batch: int | None = None) -> None:
    if not isinstance(tokens, Tensor) or tokens.dtype not in (torch.int64, torch.int32) or tokens.dim() != axes:
        raise ValueError(f"{name}: expected an integer tensor with {axes} axes, got {kind(tokens)}")
    if tokens.numel() == 0:
        raise ValueError(f"{name}: expected at least one token, got shape {tuple(tokens.shape)}")
    if batch is not None and tokens.shape[0] != batch:
        raise ValueError(f"{name}: expected a batch of {batch}, as the source's, got {tokens.shape[0]}")
    # On a GPU this would wait for the device at every step, and the embedding's own check speaks there.
    if tokens.device.type == "cpu" and tokens.numel():
        low, high = (int(x) for x in torch.aminmax(tokens))
        if low < 0 or high >= vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"{name}: expected token ids from 0 to {vocab_size - 1}, got {wrong}")
