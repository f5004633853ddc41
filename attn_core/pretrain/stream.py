"""A decoder's pretraining: texts as one stream, and the loss of each next token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Self

import torch
from torch import Tensor, nn

from attn_core.contract import check_size, kind
from attn_core.data import Vocab
from attn_core.train import token_loss


@dataclass(frozen=True, eq=False)
class StreamBatch:
    """Pieces of a stream: ``source (B, T)`` and ``target_out (B, T)``, in each place the token after it (int64)."""

    source: Tensor
    target_out: Tensor

    def __len__(self) -> int:
        return self.source.shape[0]

    def rows(self, chosen: slice) -> Self:
        """The pieces of a slice."""
        return type(self)(self.source[chosen], self.target_out[chosen])

    def to(self, device: torch.device | str) -> Self:
        """The same batch on a device."""
        return type(self)(self.source.to(device), self.target_out.to(device))


class StreamBatches:
    """Texts in one stream, <bos> before and <eos> after each, cut into pieces of ``length`` tokens: nothing is padding.

    With a seed, the texts of ``epoch(n)`` are shuffled by (seed, n), so that the cuts fall elsewhere each time; without
    one they keep their order. What is left at the end of the stream and fills no piece is left out.

    Raises:
        ValueError: no text, or too few for one piece; a size below 1; a seed that is neither None nor an integer of 0
            or more.

    Source: Liu et al. 2019, section 4.2 (texts end to end; here for a decoder).
    """

    def __init__(
        self, texts: Sequence[Sequence[str]], vocab: Vocab, *, batch_size: int, length: int, seed: int | None = None
    ) -> None:
        check_size("batch_size", batch_size)
        check_size("length", length)
        if seed is not None and (type(seed) is not int or seed < 0):
            raise ValueError(f"seed: expected None or an integer of 0 or more, got {seed!r}")
        if not isinstance(vocab, Vocab):
            raise ValueError(f"vocab: expected a Vocab, got {kind(vocab)}")
        if not isinstance(texts, Sequence):
            raise ValueError(f"texts: expected a sequence of texts, got {kind(texts)}")
        if not len(texts):
            raise ValueError("texts: expected at least one text, got none")
        self._texts = [torch.tensor([Vocab.BOS, *vocab.encode(words), Vocab.EOS]) for words in texts]
        self.batch_size, self.length, self.seed = batch_size, length, seed
        # One token more than the pieces have: the last one's target.
        self._pieces = (sum(len(text) for text in self._texts) - 1) // length
        if self._pieces < 1:
            raise ValueError(f"texts: expected more than {length} tokens in all, <bos> and <eos> counted, got fewer")

    def __len__(self) -> int:
        return -(-self._pieces // self.batch_size)

    def __iter__(self) -> Iterator[StreamBatch]:
        return self.epoch(0)

    def epoch(self, number: int) -> Iterator[StreamBatch]:
        """The batches of one epoch; the same for the same seed and number.

        Raises:
            ValueError: a number that is not an integer of 0 or more.
        """
        if type(number) is not int or number < 0:
            raise ValueError(f"number: expected an integer of 0 or more, got {number!r}")
        order = list(range(len(self._texts)))
        if self.seed is not None:
            Random((self.seed << 32) + number).shuffle(order)
        stream = torch.cat([self._texts[i] for i in order])
        kept = self._pieces * self.length
        pieces = [stream[start : start + kept].view(-1, self.length).split(self.batch_size) for start in (0, 1)]
        return (StreamBatch(source, target) for source, target in zip(*pieces, strict=True))


def next_token_loss(model: nn.Module, batch: StreamBatch) -> Tensor:
    """The mean cross-entropy of each next token, in nats; a scalar. The model gives logits ``(B, T, V)``.

    Source: Radford et al. 2018, eq. 1.
    """
    return token_loss(model(batch.source), batch.target_out)
