"""Sequence to sequence with recurrent networks: an encoder, and decoders without attention and with many kinds.

A decoder reads the encoder's ``Memory`` and works one token at a time: ``init_state(memory)`` gives its first state,
and ``step(tokens, state)`` the scores of the next token and the next state. Training runs the same arithmetic over a
whole target at once.
"""

from attn_core.seq2seq.bahdanau import BahdanauDecoder, BahdanauState
from attn_core.seq2seq.decoder import DeepOutput, State
from attn_core.seq2seq.encoder import Encoder, Memory
from attn_core.seq2seq.fixed import FixedContextDecoder, FixedContextState
from attn_core.seq2seq.hard import HardDecoder
from attn_core.seq2seq.luong import LocalMonotonic, LocalPredictive, LuongDecoder, LuongState
from attn_core.seq2seq.model import Seq2Seq
from attn_core.seq2seq.multi_head_decoder import MultiHeadDecoder, MultiHeadState

__all__ = [
    "BahdanauDecoder",
    "BahdanauState",
    "DeepOutput",
    "Encoder",
    "FixedContextDecoder",
    "FixedContextState",
    "HardDecoder",
    "LocalMonotonic",
    "LocalPredictive",
    "LuongDecoder",
    "LuongState",
    "Memory",
    "MultiHeadDecoder",
    "MultiHeadState",
    "Seq2Seq",
    "State",
]
