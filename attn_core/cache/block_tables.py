"""Which block holds which token: the paged cache's policy, in plain Python. The tensors are in ``pools``.

A sequence has a *block table*, the numbers of its blocks in the order of its tokens, so token i lies in block
``table[i // block_size]`` at offset ``i % block_size``. Blocks are handed out when they are needed, in no order, and
sequences that begin alike share the blocks of their beginning until one of them has to write into a shared block: it
then gets a copy (copy-on-write).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from attn_core.contract import check_integer


class OutOfBlocks(RuntimeError):  # noqa: N818 - the name says what is the matter
    """There are fewer free blocks than a call needs. Nothing has changed: free a sequence, and call again."""


class Placement(NamedTuple):
    """Where new tokens go: first do the ``copies``, in their order, then write the tokens to the ``slots``."""

    slots: list[tuple[int, int]]  # (block, offset) of each token
    copies: list[tuple[int, int]]  # (source block, target block)


@dataclass(frozen=True)
class StreamingWindow:
    """Each token attends to the last ``size`` tokens, itself included, and to the first ``sinks`` of the text.

    So a text of any length holds a bounded number of blocks: ``BlockTables.drop`` gives back the ``unseen`` ones
    between the first tokens and the window. Positions are those in the text, so answers do not depend on the size of
    blocks, or on how a text is cut into calls. Xiao et al. number the tokens in the cache anew in each step instead, so
    that no distance exceeds those of training.

    Source: Xiao et al. 2023, section 3.2.
    """

    size: int
    sinks: int = 4

    def __post_init__(self) -> None:
        check_integer("size", self.size)
        check_integer("sinks", self.sinks, at_least=0)

    def unseen(self, length: int, block_size: int) -> range:
        """The blocks of a text of ``length`` tokens that no later token attends to, as indices of its table."""
        first = -(-self.sinks // block_size)
        return range(first, max(first, (length + 1 - self.size) // block_size))

    def most_blocks(self, tokens: int, block_size: int) -> int:
        """How many blocks a text holds at most while it grows by up to ``tokens`` tokens at a time."""
        return -(-self.sinks // block_size) + (self.size + tokens + 2 * block_size - 3) // block_size


class BlockTables:
    """The block tables of all sequences, the free blocks, and how many tables refer to each of the others.

    Sequences are named by numbers that are never given twice. One object serves all layers of a model: a token lies in
    the same slot of every layer's pool. Every method raises ``ValueError`` if a sequence does not exist, or a number
    of tokens is out of range.

    Source: Kwon et al. 2023, sections 4.2 (block tables), 4.4 (sharing, reference counts, copy-on-write).
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        check_integer("num_blocks", num_blocks)
        check_integer("block_size", block_size)
        self.num_blocks, self.block_size = num_blocks, block_size
        self._free = list(range(num_blocks - 1, -1, -1))  # a stack: the block freed last is used first
        self._references = [0] * num_blocks
        self._tables: dict[int, list[int]] = {}
        self._lengths: dict[int, int] = {}
        self._next = 0

    @property
    def sequences(self) -> tuple[int, ...]:
        """All sequences, oldest first."""
        return tuple(self._tables)

    @property
    def free_blocks(self) -> int:
        """How many blocks belong to no sequence."""
        return len(self._free)

    @property
    def used_blocks(self) -> int:
        """How many blocks belong to at least one sequence."""
        return self.num_blocks - self.free_blocks

    @property
    def filled_slots(self) -> int:
        """Slots that hold some sequence's token, a shared one counted once; every block of every table is visited."""
        filled: Counter[int] = Counter()
        for sequence, table in self._tables.items():
            for i, block in enumerate(table):
                held = min(self.block_size, self._lengths[sequence] - i * self.block_size) if block >= 0 else 0
                filled[block] = max(filled[block], held)
        return filled.total()

    def table(self, sequence: int) -> list[int]:
        """The sequence's blocks, in the order of its tokens: a copy. Where a block was dropped, it holds −1."""
        return list(self._table(sequence))

    def length(self, sequence: int) -> int:
        """How many tokens the sequence has."""
        self._table(sequence)
        return self._lengths[sequence]

    def references(self, block: int) -> int:
        """How many tables the block is in: 0 where it is free."""
        return self._references[block]

    def add_sequence(self) -> int:
        """A new sequence with no tokens and no blocks."""
        return self._add([], 0)

    def fork(self, sequence: int) -> int:
        """A new sequence with all tokens of this one: it shares their blocks."""
        table = self.table(sequence)
        for block in table:
            if block >= 0:
                self._references[block] += 1
        return self._add(table, self._lengths[sequence])

    def free(self, sequence: int) -> None:
        """Forget the sequence. Blocks that no other sequence shares become free."""
        self.truncate(sequence, 0)
        del self._tables[sequence], self._lengths[sequence]

    def truncate(self, sequence: int, tokens: int) -> None:
        """Forget all but the sequence's first ``tokens`` tokens, and give back the blocks that held only others."""
        table = self._table(sequence)
        check_integer("tokens", tokens, at_least=0, at_most=self._lengths[sequence])
        kept = self._blocks(tokens)
        if tokens % self.block_size and table[kept - 1] < 0:  # the next token would be written there
            raise ValueError(f"tokens: expected an end within a block that the sequence still has, got {tokens}")
        for block in reversed(table[kept:]):
            if block >= 0:
                self._release(block)
        del table[kept:]
        self._lengths[sequence] = tokens

    def drop(self, sequence: int, blocks: range) -> None:
        """Give back these full blocks, indices of the sequence's table, which then holds −1 in their place."""
        table = self._table(sequence)
        full = self._lengths[sequence] // self.block_size
        check_integer("blocks", blocks.stop if blocks else 0, at_least=0, at_most=full)
        for index in reversed(blocks):
            if table[index] >= 0:
                self._release(table[index])
                table[index] = -1

    def append(self, sequence: int, tokens: int) -> Placement:
        """Make room for so many new tokens of one sequence; raises as ``append_all``."""
        return self.append_all({sequence: tokens})

    def append_all(self, growth: Mapping[int, int]) -> Placement:
        """Make room for the new tokens of several sequences, ``{sequence: tokens}``: for all of them or for none.

        The slots come in the order of ``growth``, each sequence's together. Raises ``OutOfBlocks`` if there are too few
        free blocks; nothing has changed then.
        """
        needed = self.blocks_needed(growth)
        if needed > self.free_blocks:
            expected = f"at most {self.free_blocks} new blocks, the free ones of {self.num_blocks}"
            raise OutOfBlocks(f"expected {expected}, got a need of {needed} for {sum(growth.values())} tokens")
        slots: list[tuple[int, int]] = []
        copies: list[tuple[int, int]] = []
        for sequence, tokens in growth.items():
            table, begin = self._tables[sequence], self._lengths[sequence]
            if self._writes_into_shared(sequence, tokens):
                source, table[-1] = table[-1], self._take()
                self._release(source)
                copies.append((source, table[-1]))
            end = begin + tokens
            table += [self._take() for _ in range(self._blocks(end) - len(table))]
            slots += [(table[i // self.block_size], i % self.block_size) for i in range(begin, end)]
            self._lengths[sequence] = end
        return Placement(slots, copies)

    def blocks_needed(self, growth: Mapping[int, int]) -> int:
        """How many free blocks ``append_all(growth)`` would take, those for copies included."""
        needed = 0
        left: Counter[int] = Counter()  # how many of a shared block's owners will have left it for their copies
        for sequence, tokens in growth.items():
            table = self._table(sequence)
            check_integer("tokens", tokens, at_least=0)
            needed += self._blocks(self._lengths[sequence] + tokens) - len(table)
            if self._writes_into_shared(sequence, tokens, left):
                left[table[-1]] += 1
                needed += 1
        return needed

    def _writes_into_shared(self, sequence: int, tokens: int, left: Mapping[int, int] | None = None) -> bool:
        """Whether the first new token goes into a block that others have too. A full last block is left alone."""
        if tokens == 0 or self._lengths[sequence] % self.block_size == 0:
            return False
        last = self._tables[sequence][-1]
        return self._references[last] - (left or {}).get(last, 0) > 1

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _add(self, table: list[int], length: int) -> int:
        sequence, self._next = self._next, self._next + 1
        self._tables[sequence], self._lengths[sequence] = table, length
        return sequence

    def _take(self) -> int:
        block = self._free.pop()
        self._references[block] = 1
        return block

    def _release(self, block: int) -> None:
        self._references[block] -= 1
        if self._references[block] == 0:
            self._free.append(block)

    def _table(self, sequence: int) -> list[int]:
        if isinstance(sequence, bool) or not isinstance(sequence, int) or sequence not in self._tables:
            raise ValueError(f"sequence: expected one of {list(self._tables)}, got {sequence!r}")
        return self._tables[sequence]
