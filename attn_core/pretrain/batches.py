"""Texts of one or two parts, packed into batches: with hidden words for pretraining, with labels for tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attn_core.contract import check_size, kind, shown
from attn_core.data import Vocab
from attn_core.data.batches import POOL
from attn_core.data.vocab import PretrainingVocab
from attn_core.pretrain.masking import mask_tokens

NO_LABEL = -1


@dataclass(frozen=True)
class Text:
    """The words of a text in one part or two, and the number of its class, if it has one.

    ``at`` is the place of the token whose vector tells the class, counted in the packed text: 0 is <cls>, 1 the first
    word.
    """

    first: Sequence[str]
    second: Sequence[str] = ()
    label: int = NO_LABEL
    at: int = 0


@dataclass(frozen=True, eq=False)
class TextBatch:
    """Packed texts as numbers (int64), padded at the end with <pad>.

    Shapes: ``source (B, T)``: <cls>, the first part, <sep> and, where there is one, the second part and <sep>;
    ``source_lengths (B,)``; ``segments (B, T)``, 1 in the second part and its <sep>, else 0; ``labels (B,)``, −1 where
    there is none; ``at (B,)``, the place that tells the class; ``target_out``: the hidden words ``(B, T)``, <pad>
    elsewhere, or, where none is hidden, ones ``(B, 1)``, so that ``fit`` gives each text the same weight.
    """

    source: Tensor
    source_lengths: Tensor
    segments: Tensor
    labels: Tensor
    at: Tensor
    target_out: Tensor

    def __len__(self) -> int:
        return self.source.shape[0]

    def rows(self, chosen: slice) -> Self:
        """The texts of a slice, padded as they are."""
        return type(self)(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    def to(self, device: torch.device | str) -> Self:
        """The same batch on a device."""
        return type(self)(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})


class _TextBatches:
    """Batches of the texts that ``texts(n)`` gives for epoch n, equally many each time."""

    def __init__(
        self, texts: Callable[[int], Sequence[Text]], vocab: PretrainingVocab, *, batch_size: int, seed: int | None
    ) -> None:
        check_size("batch_size", batch_size)
        if seed is not None and (type(seed) is not int or seed < 0):
            raise ValueError(f"seed: expected None or an integer of 0 or more, got {seed!r}")
        if not isinstance(vocab, PretrainingVocab):
            raise ValueError(f"vocab: expected a PretrainingVocab, got {vocab!r}")
        if not callable(texts):
            raise ValueError(f"texts: expected a function from an epoch's number to its texts, got {kind(texts)}")
        self.texts, self.vocab, self.batch_size, self.seed = texts, vocab, batch_size, seed
        self.number = len(texts(0))
        if not self.number:
            raise ValueError("texts: expected at least one text, got none")

    def __len__(self) -> int:
        return -(-self.number // self.batch_size)

    def __iter__(self) -> Iterator[TextBatch]:
        return self.epoch(0)

    def epoch(self, number: int) -> Iterator[TextBatch]:
        """The batches of one epoch; the same for the same seed and number.

        Raises:
            ValueError: a number that is not an integer of 0 or more, or texts that are not as many as in epoch 0.
        """
        if type(number) is not int or number < 0:
            raise ValueError(f"number: expected an integer of 0 or more, got {number!r}")
        texts = self.texts(number)
        if len(texts) != self.number:
            raise ValueError(f"texts: expected {self.number} in each epoch, got {len(texts)} in epoch {number}")
        packed = [pack(text, self.vocab) for text in texts]
        plan = _plan([len(tokens) for tokens, _ in packed], self.batch_size, self.seed, number)
        # Of a seed torch reads the lower 32 bits alone.
        drawn = Random(((self.seed or 0) << 32) + number).getrandbits(32)
        generator = torch.Generator().manual_seed(drawn)
        return (self._batch([texts[i] for i in rows], [packed[i] for i in rows], generator) for rows in plan)

    def _batch(self, texts: list[Text], packed: list[tuple[Tensor, Tensor]], by: torch.Generator) -> TextBatch:
        source = pad_sequence([tokens for tokens, _ in packed], batch_first=True, padding_value=Vocab.PAD)
        inputs, target_out = self._targets(source, by)
        return TextBatch(
            inputs,
            torch.tensor([len(tokens) for tokens, _ in packed]),
            pad_sequence([segments for _, segments in packed], batch_first=True),
            torch.tensor([text.label for text in texts]),
            torch.tensor([text.at for text in texts]),
            target_out,
        )

    def _targets(self, source: Tensor, by: torch.Generator) -> tuple[Tensor, Tensor]:
        """The inputs and targets of packed texts: where nothing is hidden, the texts and ones."""
        return source, torch.ones(len(source), 1, dtype=torch.int64)


class MaskedBatches(_TextBatches):
    """Texts with hidden words, hidden anew in each epoch: for ``fit(loss=masked_loss)``.

    ``texts`` is called with an epoch's number and gives its texts, equally many each time, as ``whole_texts`` does.
    With a seed, ``epoch(n)`` is shuffled by (seed, n), and texts of like length stand together; without one, texts stay
    in their order, and what is hidden is drawn by n alone.

    Raises:
        ValueError: no texts, a ``batch_size`` below 1, a seed that is neither None nor an integer of 0 or more,
            another kind of vocabulary, ``texts`` that cannot be called.

    Source: Devlin et al. 2018, section 3.1; Liu et al. 2019, section 4.1 (hidden anew each time).
    """

    def _targets(self, source: Tensor, by: torch.Generator) -> tuple[Tensor, Tensor]:
        return mask_tokens(source, len(self.vocab), generator=by)


class LabelledBatches(_TextBatches):
    """Labelled texts, nothing hidden, every text once an epoch: for ``fit(loss=class_loss)``.

    Order and errors as ``MaskedBatches``; in addition:

    Raises:
        ValueError: a text without a label.
    """

    def __init__(
        self, texts: Sequence[Text], vocab: PretrainingVocab, *, batch_size: int, seed: int | None = None
    ) -> None:
        if not isinstance(texts, Sequence):
            raise ValueError(f"texts: expected a sequence of Text, got {kind(texts)}")
        for text in texts:
            if not isinstance(text, Text) or type(text.label) is not int or text.label < 0:
                raise ValueError(f"texts: expected a label of 0 or more for each, got {shown(text)}")
        super().__init__(lambda number: texts, vocab, batch_size=batch_size, seed=seed)


def pack(text: Text, vocab: PretrainingVocab) -> tuple[Tensor, Tensor]:
    """<cls>, the first part, <sep>, and of two parts the second and <sep>: the numbers ``(T,)`` and segments ``(T,)``.

    Raises:
        ValueError: something that is no ``Text``; a first part without words; a place ``at`` outside the packed text.

    Source: Devlin et al. 2018, figure 2.
    """
    if not isinstance(text, Text):
        raise ValueError(f"text: expected a Text, got {shown(text)}")
    first = [vocab.CLS, *vocab.encode(text.first), vocab.SEP]
    second = [*vocab.encode(text.second), vocab.SEP] if text.second else []
    if type(text.at) is not int or not 0 <= text.at < len(first) + len(second):
        raise ValueError(f"at: expected a place from 0 to {len(first) + len(second) - 1}, got {shown(text.at)}")
    segments = torch.tensor([0] * len(first) + [1] * len(second))
    return torch.tensor(first + second), segments


def whole_texts(texts: Sequence[Sequence[str]]) -> Callable[[int], Sequence[Text]]:
    """Every text whole, in one part, the same in each epoch.

    Raises:
        ValueError: ``texts`` that are none, or one text.
    """
    if not isinstance(texts, Iterable) or isinstance(texts, str):
        raise ValueError(f"texts: expected a sequence of texts, got {kind(texts)}")
    made = [Text(words) for words in texts]
    return lambda number: made


def _plan(lengths: list[int], size: int, seed: int | None, number: int) -> list[list[int]]:
    """Which texts stand in which batch."""
    order = list(range(len(lengths)))
    if seed is None:
        return [order[start : start + size] for start in range(0, len(order), size)]
    random = Random((seed << 32) + number)
    random.shuffle(order)
    batches = []
    for start in range(0, len(order), size * POOL):
        pool = sorted(order[start : start + size * POOL], key=lengths.__getitem__)
        batches += [pool[at : at + size] for at in range(0, len(pool), size)]
    random.shuffle(batches)
    return batches
