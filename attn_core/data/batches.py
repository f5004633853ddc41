"""Pairs to padded tensors, sentences of like length together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from random import Random

import torch
from torch import Tensor

from attn_core.contract import shown
from attn_core.data.pairs import Pair
from attn_core.data.vocab import Vocab

POOL = 50
"""How many batches' worth of shuffled pairs are sorted by length together."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentences as numbers (int64), padded at the end with `Vocab.PAD`.

    Shapes: `source` (B, S), each sentence ended by <eos>; `target_in` (B, T), each begun with <bos>;
    `target_out` (B, T), each ended by <eos>; `source_lengths` and `target_lengths` (B,), in tokens, <eos>
    counted.
    """

    source: Tensor
    source_lengths: Tensor
    target_in: Tensor
    target_out: Tensor
    target_lengths: Tensor

    def __len__(self) -> int:
        return self.source.shape[0]

    def rows(self, chosen: slice) -> Batch:
        """The sentences of a slice, padded as they are."""
        return Batch(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        # Copies to the CPU are waited for: nothing there would wait for them later.
        free = torch.device(device).type != "cpu"
        return Batch(**{f.name: getattr(self, f.name).to(device, non_blocking=free) for f in fields(self)})


class Batches:
    """The batches of some pairs, every pair once an epoch; the last batch may be smaller.

    With a seed, `epoch(n)` is shuffled by (seed, n), and sentences of like length stand together so that
    little is padding; iterating gives epoch 0. Without a seed the batches are in the order of `pairs`.

    Raises: ValueError for no pairs, something that is not a `Pair`, a `batch_size` below 1, a seed that is
    neither None nor an integer of 0 or more.
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
        if type(batch_size) is not int or batch_size < 1:
            raise ValueError(f"batch_size: expected an integer of 1 or more, got {batch_size!r}")
        if seed is not None and (type(seed) is not int or seed < 0):
            raise ValueError(f"seed: expected None or an integer of 0 or more, got {seed!r}")
        for name, vocab in (("source_vocab", source_vocab), ("target_vocab", target_vocab)):
            if not isinstance(vocab, Vocab):
                raise ValueError(f"{name}: expected a Vocab, got {shown(vocab)}")
        if not isinstance(pairs, Iterable):
            raise ValueError(f"pairs: expected Pair objects, got {shown(pairs)}")
        self.pairs = tuple(pairs)
        if not self.pairs:
            raise ValueError("pairs: expected at least one pair, got none")
        for pair in self.pairs:
            if not isinstance(pair, Pair):
                raise ValueError(f"pairs: expected Pair objects, got {shown(pair)}")
        self.batch_size = batch_size
        self.seed = seed
        self._sources = [torch.tensor([*source_vocab.encode(p.source), Vocab.EOS]) for p in self.pairs]
        self._targets = [torch.tensor([Vocab.BOS, *target_vocab.encode(p.target), Vocab.EOS]) for p in self.pairs]

    def __len__(self) -> int:
        return -(-len(self.pairs) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch; the same for the same seed and number.

        Raises: ValueError for a number that is not an integer of 0 or more.
        """
        if type(number) is not int or number < 0:
            raise ValueError(f"number: expected an integer of 0 or more, got {number!r}")
        return (self._batch(indices) for indices in self._plan(number))

    def _plan(self, number: int) -> list[list[int]]:
        """Which pairs stand in which batch."""
        order, size = list(range(len(self.pairs))), self.batch_size
        if self.seed is None:
            return [order[start : start + size] for start in range(0, len(order), size)]
        random = Random((self.seed << 32) + number)
        random.shuffle(order)
        batches = []
        for start in range(0, len(order), size * POOL):
            pool = sorted(order[start : start + size * POOL], key=self._lengths)
            batches += [pool[at : at + size] for at in range(0, len(pool), size)]
        random.shuffle(batches)
        return batches

    def _lengths(self, index: int) -> tuple[int, int]:
        """Both sides count: sorted by one alone, a seventh of the other is padding."""
        source, target = len(self._sources[index]), len(self._targets[index])
        return source + target, target

    def _batch(self, indices: list[int]) -> Batch:
        sources = [self._sources[index] for index in indices]
        targets = [self._targets[index] for index in indices]
        return Batch(
            _pad(sources),
            torch.tensor([len(words) for words in sources]),
            _pad([words[:-1] for words in targets]),
            _pad([words[1:] for words in targets]),
            torch.tensor([len(words) - 1 for words in targets]),
        )


def _pad(sentences: list[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=Vocab.PAD)
