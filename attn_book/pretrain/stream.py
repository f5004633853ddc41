"""A decoder's pretraining: texts as one stream, and the loss of each next token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attn_book.data import EpochBatches, TensorBatch, Vocab
from attn_book.data.vocab import check_vocab
from attn_book.train import token_loss
from attn_core.contract import check_integer


@dataclass(frozen=True, eq=False)
class StreamBatch(TensorBatch):
    """Pieces of a stream (int64): ``source (B, T)``, and ``target_out (B, T)`` with the token after each of them."""

    source: Tensor
    target_out: Tensor


class StreamBatches(EpochBatches[StreamBatch]):
    """Texts in one stream, <bos> before and <eos> after each, cut into pieces of ``length`` tokens without padding.

    With a seed, the texts of ``epoch(n)`` are shuffled by (seed, n), so that the cuts fall elsewhere each time. Tokens
    at the end of the stream that do not fill a piece are left out.

    Raises:
        ValueError: if the texts do not fill one piece and one token more, a size is below 1, or ``seed`` is
            neither None nor an integer of at least 0.

    Source: Liu et al. 2019, section 4.2 (texts end to end; here for a decoder).
    """

    def __init__(
        self, texts: Sequence[Sequence[str]], vocab: Vocab, *, batch_size: int, length: int, seed: int | None = None
    ) -> None:
        check_integer("length", length)
        check_vocab("vocab", vocab)
        self._texts = [torch.tensor([Vocab.BOS, *vocab.encode(words), Vocab.EOS]) for words in texts]
        self.length = length
        # The last piece's target needs one token more than the pieces have.
        super().__init__((sum(len(text) for text in self._texts) - 1) // length, batch_size, seed)
        if self.num_examples < 1:
            raise ValueError(f"texts: expected more than {length} tokens in all, <bos> and <eos> counted, got fewer")

    def _epoch(self, number: int) -> Iterator[StreamBatch]:
        stream = torch.cat([self._texts[index] for index in self._order(len(self._texts), number)])
        end = self.num_examples * self.length
        source, target = (stream[start : start + end].view(-1, self.length) for start in (0, 1))
        pieces = zip(source.split(self.batch_size), target.split(self.batch_size), strict=True)
        return (StreamBatch(*piece) for piece in pieces)


def next_token_loss(
    model: nn.Module, batch: StreamBatch, *, padding_id: int | None = Vocab.PAD
) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each next token, summed, in nats, and their number. The model gives logits ``(B, T, V)``.

    ``padding_id`` is that of ``token_loss``: None for a tokenizer in which 0 is a token.

    Source: Radford et al. 2018, eq. 1.
    """
    return token_loss(model(batch.source), batch.target_out, padding_id=padding_id)
