"""Luong's decoder: it reads the last word, and then its state asks the source, or a window of it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attn_core.capture import is_captured, record
from attn_core.contract import accum_dtype, check_flags, check_integer, shown
from attn_core.mechanisms.dense import attend, masked_softmax
from attn_core.scores import Additive, Dot, General
from attn_core.seq2seq.bahdanau import BahdanauState
from attn_core.seq2seq.decoder import Decoder
from attn_core.seq2seq.encoder import Memory


class LocalMonotonic(nn.Module):
    """The window of local-m: target word t looks at source words t − D to t + D, where D is ``half_width``.

    Source: Luong et al. 2015, section 3.2.
    """

    def __init__(self, half_width: int) -> None:
        super().__init__()
        check_integer("half_width", half_width)
        self.half_width = half_width

    def forward(self, queries: Tensor, mask: Tensor, position: int) -> tuple[Tensor, Tensor | None]:
        """The mask of the window, ``(B, T, S)``, and factors for the weights, here none.

        Shapes: ``queries (B, T, D)``, the first of them for target word ``position`` (from 0); ``mask (B, S)``. A
        window that lies past the end of its sentence is empty.
        """
        centre = torch.arange(position, position + queries.shape[1], device=queries.device)[:, None]
        distance = torch.arange(mask.shape[1], device=queries.device) - centre
        return mask[:, None] & (distance.abs() <= self.half_width), None


class LocalPredictive(nn.Module):
    """The window of local-p: the decoder's state predicts its centre p, and a Gaussian around p scales the weights.

    p lies between 0 and the sentence's length; the standard deviation is half of ``half_width``. p learns through the
    Gaussian alone.

    Source: Luong et al. 2015, eq. 9 and 10.
    """

    def __init__(self, hidden_dim: int, half_width: int) -> None:
        super().__init__()
        check_integer("hidden_dim", hidden_dim)
        check_integer("half_width", half_width)
        self.half_width = half_width
        self.hidden = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.position = nn.Linear(hidden_dim, 1, bias=False)

    def forward(self, queries: Tensor, mask: Tensor, position: int) -> tuple[Tensor, Tensor | None]:
        """As ``LocalMonotonic``; the factors are the Gaussian ``(B, T, S)``."""
        logits = self.position(torch.tanh(self.hidden(queries)))
        # In half precision, the centre in a long sentence would be wrong by a word.
        centre = mask.sum(-1)[:, None, None] * torch.sigmoid(logits.to(accum_dtype(logits)))
        distance = torch.arange(mask.shape[1], device=queries.device) - centre
        gaussian = torch.exp(-2 * (distance / self.half_width) ** 2)  # exp(−d²/2σ²) with σ = half_width / 2
        return mask[:, None] & (distance.abs() <= self.half_width), gaussian


@dataclass(frozen=True)
class LuongState(BahdanauState):
    """Also the last read-out, ``attentional (B, D)``, and the ``position`` of the next target word, from 0."""

    attentional: Tensor
    position: int


class LuongDecoder(Decoder):
    """A GRU decoder that asks the source after it has read the last word.

    The query is the current hidden state. The context enters the read-out, tanh(W [context; state]), and not the GRU,
    which can therefore read a whole target at once. With ``input_feeding`` the read-out enters the GRU at the next
    step, so that it knows where attention has been, and a target is read word by word.

    ``score`` compares queries of size ``hidden_dim`` with keys of size ``memory_dim``: ``Dot()`` if these are equal,
    ``General(hidden_dim, memory_dim)``, or ``Additive(…)``, the paper's concat. Without a ``window``, attention is
    global. ``capture_attention`` collects the weights, as in ``BahdanauDecoder``.

    Source: Luong et al. 2015, section 3 (input feeding: 3.3), with GRUs instead of LSTMs, and Bahdanau's first state.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embed_dim: int,
        hidden_dim: int,
        memory_dim: int,
        score: Dot | General | Additive,
        window: LocalMonotonic | LocalPredictive | None = None,
        input_feeding: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(vocab_size, embed_dim=embed_dim, hidden_dim=hidden_dim, memory_dim=memory_dim, dropout=dropout)
        check_flags(input_feeding=input_feeding)
        for name, part in (("score", score), ("window", window)):
            if not isinstance(part, nn.Module) and (name == "score" or part is not None):
                raise ValueError(f"{name}: expected a made module, got {shown(part)}")
        self.score = score
        self.window = window
        self.input_feeding = input_feeding
        self.rnn = nn.GRU(embed_dim + (hidden_dim if input_feeding else 0), hidden_dim, batch_first=True)
        self.attentional = nn.Linear(memory_dim + hidden_dim, hidden_dim, bias=False)
        self.logits = nn.Linear(hidden_dim, vocab_size)

    def init_state(self, memory: Memory) -> LuongState:
        """The state before the first token; the keys are prepared here, once."""
        hidden = self._first_hidden(memory)
        weights = memory.states.new_zeros(memory.mask.shape)
        keys = self.score.project_keys(memory.states)
        return LuongState(hidden, memory, weights, keys, torch.zeros_like(hidden), position=0)

    def _read(self, embedded: Tensor, state: LuongState) -> tuple[Tensor, LuongState]:
        pieces = embedded.split(1, dim=1) if self.input_feeding else [embedded]
        attentionals, maps = [], []
        for piece in pieces:
            attentional, weights, state = self._advance(piece, state)
            attentionals.append(attentional)
            maps.append(weights)
        if is_captured(self):
            record(self, torch.cat(maps, dim=1)[:, None])
        return self.logits(torch.cat(attentionals, dim=1)), state

    def _advance(self, embedded: Tensor, state: LuongState) -> tuple[Tensor, Tensor, LuongState]:
        """The read-out and weights of each of ``embedded (B, T, E)``, and the state; with input feeding, T is 1."""
        if self.input_feeding:
            embedded = torch.cat([embedded, state.attentional[:, None]], dim=-1)
        queries, hidden = self.rnn(embedded, state.hidden[None].contiguous())
        context, weights = self._attend(queries, state)
        attentional = self.dropout(torch.tanh(self.attentional(torch.cat([context, queries], dim=-1))))
        last = {"hidden": hidden[0], "weights": weights[:, -1], "attentional": attentional[:, -1]}
        return attentional, weights, replace(state, **last, position=state.position + embedded.shape[1])

    def _attend(self, queries: Tensor, state: LuongState) -> tuple[Tensor, Tensor]:
        """The contexts ``(B, T, C)`` of queries ``(B, T, D)``, and the weights ``(B, T, S)``."""
        states, mask = state.memory.states, state.memory.mask
        scores = self.score.score(queries, state.keys)
        if self.window is None:
            return attend(scores, states, mask[:, None])
        visible, factor = self.window(queries, mask, state.position)
        if factor is None:
            return attend(scores, states, visible)
        weights = masked_softmax(scores, visible) * factor
        return weights.to(states.dtype) @ states, weights
