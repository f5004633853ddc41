"""Examples to batches of padded tensors, with examples of similar length together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attn_book.data.pairs import Pair
from attn_book.data.vocab import Vocab, check_vocab
from attn_core.contract import check_integer, shown

POOL = 50
"""How many batches' worth of shuffled examples are sorted by length together."""


@dataclass(frozen=True, eq=False)
class TensorBatch:
    """The base of every batch: its fields are tensors, and the first axis of each counts the examples."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def rows(self, chosen: slice) -> Self:
        """The examples of a slice, with the padding that they have."""
        return self._map(lambda tensor: tensor[chosen])

    def to(self, device: torch.device | str) -> Self:
        """The same batch on a device."""
        # A copy to the CPU must be waited for, because nothing that reads it there would wait.
        non_blocking = torch.device(device).type != "cpu"
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(**{f.name: change(getattr(self, f.name)) for f in fields(self)})


AnyBatch = TypeVar("AnyBatch", bound=TensorBatch)


class EpochBatches(Generic[AnyBatch]):
    """The base of all that ``fit`` trains on: every example once an epoch, and one batch that may be smaller.

    A subclass gives the batches of an epoch in ``_epoch``. With a ``seed`` it shuffles them by the seed and the epoch's
    number; without one they keep their order. Iterating gives epoch 0.

    Raises:
        ValueError: if ``batch_size`` is below 1, or ``seed`` is neither None nor an integer of at least 0.
    """

    def __init__(self, num_examples: int, batch_size: int, seed: int | None) -> None:
        check_integer("batch_size", batch_size)
        if seed is not None:
            check_integer("seed", seed, at_least=0)
        self.num_examples, self.batch_size, self.seed = num_examples, batch_size, seed

    def __len__(self) -> int:
        return -(-self.num_examples // self.batch_size)

    def __iter__(self) -> Iterator[AnyBatch]:
        return self.epoch(0)

    def __getitem__(self, index: object) -> AnyBatch:
        # PyTorch's DataLoader asks by index, and would put the batches into batches.
        raise ValueError(f"batches: expected a loop over them, as they are batches already, got the index {index!r}")

    def epoch(self, number: int) -> Iterator[AnyBatch]:
        """The batches of one epoch, the same each time for the same seed and number.

        Raises:
            ValueError: if ``number`` is not an integer of at least 0.
        """
        check_integer("number", number, at_least=0)
        return self._epoch(number)

    def _epoch(self, number: int) -> Iterator[AnyBatch]:
        raise NotImplementedError

    def _random(self, number: int) -> Random:
        return Random(((self.seed or 0) << 32) + number)

    def _order(self, count: int, number: int) -> list[int]:
        """The indices below ``count``, in the order of this epoch."""
        order = list(range(count))
        if self.seed is not None:
            self._random(number).shuffle(order)
        return order

    def _plan(self, lengths: Sequence[Any], number: int) -> list[list[int]]:
        """Which examples form which batch. With a seed, examples of similar length are together, to save padding."""
        size, order = self.batch_size, list(range(len(lengths)))
        random = self._random(number)
        if self.seed is not None:
            random.shuffle(order)
            pools = [order[start : start + size * POOL] for start in range(0, len(order), size * POOL)]
            order = [index for pool in pools for index in sorted(pool, key=lengths.__getitem__)]
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        if self.seed is not None:
            random.shuffle(batches)
        return batches


@dataclass(frozen=True, eq=False)
class Batch(TensorBatch):
    """Sentence pairs as token ids (int64), padded at the end with ``Vocab.PAD``.

    Shapes: ``source (B, S)``, each sentence ended by <eos>; ``target_in (B, T)``, each begun with <bos>;
    ``target_out (B, T)``, each ended by <eos>; ``source_lengths`` and ``target_lengths (B,)``, in tokens with <eos>.
    """

    source: Tensor
    source_lengths: Tensor
    target_in: Tensor
    target_out: Tensor
    target_lengths: Tensor


class Batches(EpochBatches[Batch]):
    """The batches of sentence pairs. With a seed, pairs of similar length are together, so that little is padding.

    Raises:
        ValueError: if there are no pairs, ``batch_size`` is below 1, or ``seed`` is neither None nor an integer of at
            least 0.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        source_vocab: Vocab,
        target_vocab: Vocab,
        *,
        batch_size: int,
        seed: int | None = None,
    ) -> None:
        self.pairs = tuple(pairs) if isinstance(pairs, Iterable) else (pairs,)
        if not self.pairs:
            raise ValueError("pairs: expected at least one pair, got none")
        for pair in self.pairs:
            if not isinstance(pair, Pair):
                raise ValueError(f"pairs: expected a sequence of Pairs, got {shown(pair)}")
        check_vocab("source_vocab", source_vocab)
        check_vocab("target_vocab", target_vocab)
        super().__init__(len(self.pairs), batch_size, seed)
        self._sources = [torch.tensor([*source_vocab.encode(p.source), Vocab.EOS]) for p in self.pairs]
        self._targets = [torch.tensor([Vocab.BOS, *target_vocab.encode(p.target), Vocab.EOS]) for p in self.pairs]

    def _epoch(self, number: int) -> Iterator[Batch]:
        # Both sides count: with pairs sorted by one alone, a seventh of the other is padding.
        sides = zip(self._sources, self._targets, strict=True)
        lengths = [(len(source) + len(target), len(target)) for source, target in sides]
        return (self._batch(indices) for indices in self._plan(lengths, number))

    def _batch(self, indices: list[int]) -> Batch:
        sources = [self._sources[index] for index in indices]
        targets = [self._targets[index] for index in indices]
        return Batch(
            pad(sources),
            torch.tensor([len(tokens) for tokens in sources]),
            pad([tokens[:-1] for tokens in targets]),
            pad([tokens[1:] for tokens in targets]),
            torch.tensor([len(tokens) - 1 for tokens in targets]),
        )


def pad(rows: list[Tensor]) -> Tensor:
    """Rows of token ids ``(T,)`` as one tensor ``(B, longest T)``, with ``Vocab.PAD`` after the shorter ones."""
    return pad_sequence(rows, batch_first=True, padding_value=Vocab.PAD)
