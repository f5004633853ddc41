"""Automatic prefix caching: full blocks are found by their content, and kept when nobody uses them any more."""

import hashlib
import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence

from attn_core.cache import BlockTables
from attn_core.contract import check_integer


class PrefixTables(BlockTables):
    """``BlockTables`` in which a new sequence finds the blocks that hold its beginning already.

    Keys and values depend on all earlier tokens, so a block is found by a hash of its tokens and of the block before.
    Only full blocks are registered. One that no sequence refers to stays as it is and counts as free; when no other is
    free, the least recently used one is taken, and of one text the end before the beginning.

    Source: Kwon et al. 2023, section 4.4 (shared prefixes); hashes of blocks are vLLM's later form of it.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self._block_of: dict[bytes, int] = {}  # of each hash
        self._hash_of: dict[int, bytes] = {}  # of each registered block
        self._unused: dict[int, None] = {}  # registered blocks without a sequence, in the order of their last use
        self._registered: dict[int, list[bytes]] = {}  # of each sequence, the hashes of its first blocks

    @property
    def free_blocks(self) -> int:
        """How many blocks belong to no sequence, those included that hold tokens which may be wanted again."""
        return len(self._free) + len(self._unused)

    def add_sequence(self, tokens: Sequence[int] = ()) -> int:
        """A new sequence, which begins with as many blocks of these ``tokens`` as are in the cache: see ``length``."""
        hashes = list(itertools.takewhile(self._block_of.__contains__, self._hashes(tokens, [])))
        blocks = [self._block_of[name] for name in hashes]
        for block in blocks:
            self._unused.pop(block, None)
            self._references[block] += 1
        sequence = self._add(blocks, len(blocks) * self.block_size)
        self._registered[sequence] = hashes
        return sequence

    def register(self, sequence: int, tokens: Sequence[int]) -> None:
        """Let the sequence's full blocks be found, which hold the first of these ``tokens``."""
        check_integer("tokens", len(tokens), at_least=self.length(sequence))
        table, hashes = self._table(sequence), self._registered.setdefault(sequence, [])
        for name in self._hashes(tokens[: self.length(sequence)], hashes):
            block = table[len(hashes)]
            hashes.append(name)
            if block >= 0 and name not in self._block_of and block not in self._hash_of:  # the first one found stays
                self._block_of[name], self._hash_of[block] = block, name

    def truncate(self, sequence: int, tokens: int) -> None:
        """Forget the sequence's end; registered blocks can still be found."""
        super().truncate(sequence, tokens)
        if left := self._registered.pop(sequence, [])[: tokens // self.block_size]:
            self._registered[sequence] = left

    def _hashes(self, tokens: Sequence[int], known: list[bytes]) -> Iterator[bytes]:
        """The hash of each full block of ``tokens``, one after the other, from the first that is not ``known``."""
        name = known[-1] if known else b""
        for begin in range(len(known) * self.block_size, len(tokens) - self.block_size + 1, self.block_size):
            name = hashlib.sha256(name + array("q", tokens[begin : begin + self.block_size]).tobytes()).digest()
            yield name

    def _take(self) -> int:
        if not self._free:
            oldest = next(iter(self._unused))
            del self._unused[oldest], self._block_of[self._hash_of.pop(oldest)]
            self._free.append(oldest)
        return super()._take()

    def _release(self, block: int) -> None:
        super()._release(block)
        if self._references[block] == 0 and block in self._hash_of:
            self._unused[self._free.pop()] = None

    def _writes_into_shared(self, sequence: int, tokens: int, left: Mapping[int, int] | None = None) -> bool:
        # A sequence that was cut within a registered block must not change it, even where nobody else uses it.
        if tokens > 0 and self._lengths[sequence] % self.block_size and self._tables[sequence][-1] in self._hash_of:
            return True
        return super()._writes_into_shared(sequence, tokens, left)
