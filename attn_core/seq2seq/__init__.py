"""Sequence to sequence with recurrent networks: an encoder, and decoders without attention and with several kinds.

A decoder reads the encoder's ``Memory`` and works one token at a time: ``init_state(memory)`` gives its first state,
and ``step(tokens, state)`` the logits of the next token and the next state. In training a whole target is read at once.
"""

from attn_core.seq2seq.bahdanau import BahdanauDecoder
from attn_core.seq2seq.decoder import DeepOutput, State
from attn_core.seq2seq.encoder import Encoder, Memory
from attn_core.seq2seq.fixed import FixedContextDecoder
from attn_core.seq2seq.hard import HardDecoder
from attn_core.seq2seq.luong import LocalMonotonic, LocalPredictive, LuongDecoder
from attn_core.seq2seq.model import Seq2Seq
from attn_core.seq2seq.multi_head_decoder import MultiHeadDecoder
