"""Texts of one or two parts, packed into batches: with hidden tokens for pretraining, with labels for tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attn_book.data.batches import EpochBatches, TensorBatch, pad
from attn_book.data.vocab import PretrainingVocab, check_vocab
from attn_book.pretrain.masking import mask_tokens
from attn_core.contract import check_factory, kind, shown

NO_LABEL = -1


@dataclass(frozen=True)
class Text:
    """The words of a text in one part or two, and the number of its class, if it has one.

    ``at`` is the position of the token whose vector tells the class, counted in the packed text: 0 is <cls>, 1 the
    first word.
    """

    first: Sequence[str]
    second: Sequence[str] = ()
    label: int = NO_LABEL
    at: int = 0


@dataclass(frozen=True, eq=False)
class TextBatch(TensorBatch):
    """Packed texts as token ids (int64), padded at the end with <pad>.

    Shapes: ``source (B, T)``: <cls>, the first part, <sep> and, if there is one, the second part and <sep>;
    ``source_lengths (B,)``; ``segments (B, T)``, 1 in the second part and its <sep>, 0 elsewhere; ``labels (B,)``, −1
    for a text without one; ``at (B,)``, the position that tells the class.
    """

    source: Tensor
    source_lengths: Tensor
    segments: Tensor
    labels: Tensor
    at: Tensor


@dataclass(frozen=True, eq=False)
class MaskedBatch(TextBatch):
    """Packed texts with hidden tokens: ``target_out (B, T)`` holds those to restore, and <pad> everywhere else."""

    target_out: Tensor


class _TextBatches(EpochBatches[Any]):
    """Batches of the texts that ``texts(n)`` gives for epoch n, which must be equally many each time."""

    def __init__(
        self, texts: Callable[[int], Sequence[Text]], vocab: PretrainingVocab, *, batch_size: int, seed: int | None
    ) -> None:
        check_vocab("vocab", vocab, PretrainingVocab)
        self.texts, self.vocab = texts, vocab
        super().__init__(len(texts(0)), batch_size, seed)
        if not self.num_examples:
            raise ValueError("texts: expected at least one text, got none")

    def _epoch(self, number: int) -> Iterator[Any]:
        texts = self.texts(number)
        if len(texts) != self.num_examples:
            raise ValueError(f"texts: expected {self.num_examples} in each epoch, got {len(texts)} in epoch {number}")
        packed = [pack(text, self.vocab) for text in texts]
        plan = self._plan([len(tokens) for tokens, _ in packed], number)
        return (self._batch([texts[i] for i in rows], [packed[i] for i in rows]) for rows in plan)

    def _batch(self, texts: list[Text], packed: list[tuple[Tensor, Tensor]]) -> TextBatch:
        return TextBatch(
            pad([tokens for tokens, _ in packed]),
            torch.tensor([len(tokens) for tokens, _ in packed]),
            pad_sequence([segments for _, segments in packed], batch_first=True),
            torch.tensor([text.label for text in texts]),
            torch.tensor([text.at for text in texts]),
        )


class MaskedBatches(_TextBatches):
    """Texts with hidden tokens, chosen anew in each epoch: for ``fit(loss=masked_loss)``.

    ``texts`` is called with an epoch's number and gives its texts, equally many each time, as ``whole_texts`` does.
    With a seed, ``epoch(n)`` is shuffled by (seed, n), and texts of similar length are together. Without one, the texts
    keep their order, and n alone decides which tokens are hidden.

    Raises:
        ValueError: if there are no texts, ``batch_size`` is below 1, or ``seed`` is neither None nor an integer of at
            least 0; in ``epoch``, if the texts are not as many as in epoch 0.

    Source: Devlin et al. 2018, section 3.1; Liu et al. 2019, section 4.1 (hidden anew each time).
    """

    def __init__(
        self, texts: Callable[[int], Sequence[Text]], vocab: PretrainingVocab, *, batch_size: int, seed: int | None
    ) -> None:
        check_factory("texts", texts)
        super().__init__(texts, vocab, batch_size=batch_size, seed=seed)
        if vocab.MASK != PretrainingVocab.MASK:  # other numbers would be hidden, and by another token
            raise ValueError(f"vocab: expected one whose special tokens come first, got {kind(vocab)}")

    def _epoch(self, number: int) -> Iterator[MaskedBatch]:
        # PyTorch reads only the lower 32 bits of a seed.
        generator = torch.Generator().manual_seed(self._random(number).getrandbits(32))
        return (self._hide(batch, generator) for batch in super()._epoch(number))

    def _hide(self, batch: TextBatch, generator: torch.Generator) -> MaskedBatch:
        source, target_out = mask_tokens(batch.source, len(self.vocab), generator=generator)
        return MaskedBatch(**vars(batch) | {"source": source, "target_out": target_out})


class LabelledBatches(_TextBatches):
    """Labelled texts with nothing hidden: for ``fit(loss=class_loss)``. Their order is that of ``MaskedBatches``.

    Raises:
        ValueError: as ``MaskedBatches``; if a text has no label.
    """

    def __init__(
        self, texts: Sequence[Text], vocab: PretrainingVocab, *, batch_size: int, seed: int | None = None
    ) -> None:
        for text in texts:
            if not isinstance(text, Text) or type(text.label) is not int or text.label < 0:
                raise ValueError(f"texts: expected a label of 0 or more for each, got {shown(text)}")
        super().__init__(lambda number: texts, vocab, batch_size=batch_size, seed=seed)


def pack(text: Text, vocab: PretrainingVocab) -> tuple[Tensor, Tensor]:
    """<cls>, the first part, <sep>, and of two parts the second and <sep>: token ids ``(T,)`` and segments ``(T,)``.

    Raises:
        ValueError: if the first part has no words, or ``at`` is no position of the packed text.

    Source: Devlin et al. 2018, figure 2.
    """
    first = [vocab.CLS, *vocab.encode(text.first), vocab.SEP]
    second = [*vocab.encode(text.second), vocab.SEP] if text.second else []
    if type(text.at) is not int or not 0 <= text.at < len(first) + len(second):
        raise ValueError(f"at: expected a position from 0 to {len(first) + len(second) - 1}, got {shown(text.at)}")
    return torch.tensor(first + second), torch.tensor([0] * len(first) + [1] * len(second))


def whole_texts(texts: Sequence[Sequence[str]]) -> Callable[[int], Sequence[Text]]:
    """Every text whole, in one part, the same in each epoch: for ``MaskedBatches``."""
    whole = [Text(words) for words in texts]
    return lambda number: whole
