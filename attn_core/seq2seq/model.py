"""An encoder and a decoder as one model."""

from typing import Any

from torch import Tensor, nn

from attn_core.contract import shown
from attn_core.seq2seq.decoder import Decoder, State


class Seq2Seq(nn.Module):
    """An encoder and a decoder, trained together.

    The encoder is called as ``Encoder`` is, ``encoder(source, lengths)``, and gives a ``Memory``.

    Source: Sutskever et al. 2014; Cho et al. 2014.
    """

    def __init__(self, encoder: nn.Module, decoder: Decoder) -> None:
        super().__init__()
        for name, part in (("encoder", encoder), ("decoder", decoder)):
            if not isinstance(part, nn.Module):
                raise ValueError(f"{name}: expected a made module, got {shown(part)}")
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits ``(B, T, V)``: ``source (B, S)`` with ``lengths (B,)``, ``target (B, T)`` beginning with <bos>."""
        return self.decoder(self.encoder(source, lengths), target)

    def init_state(self, source: Tensor, lengths: Tensor) -> State:
        """Read the source; give the decoder's state before the first token."""
        return self.decoder.init_state(self.encoder(source, lengths))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, State]:
        """One step of the decoder: logits ``(B, V)`` after ``tokens (B,)``, and the next of its own states."""
        return self.decoder.step(tokens, state)
