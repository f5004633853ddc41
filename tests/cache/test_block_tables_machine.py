"""Random histories of the block tables against a dictionary of lists."""

import itertools
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from attn_core.cache import BlockTables, OutOfBlocks


class Paging(RuleBasedStateMachine):
    """``kept`` is what each sequence should hold; ``memory`` stands for the pool, {(block, offset): token}.

    ``dropped`` has the indices of each sequence's dropped blocks.
    """

    kind = BlockTables

    def __init__(self):
        super().__init__()
        self.kept, self.ever, self.memory, self.names = {}, set(), {}, itertools.count()
        self.dropped = {}
        self.tables = None

    @initialize(num_blocks=st.sampled_from([2, 8, 30]), block_size=st.sampled_from([1, 2, 4, 5]))
    def make(self, num_blocks, block_size):
        self.tables = self.kind(num_blocks, block_size)

    def add(self, sequence, tokens, dropped=()):
        assert sequence not in self.ever, "a number is never given twice"
        self.ever.add(sequence)
        self.kept[sequence] = tokens
        self.dropped[sequence] = {index for index in dropped if index * self.tables.block_size < len(tokens)}

    def ends_in_a_dropped_block(self, sequence, tokens):
        """Whether a text that is cut there could not go on; the tables say so, and nothing has changed."""
        size = self.tables.block_size
        if tokens % size == 0 or tokens // size not in self.dropped[sequence]:
            return False
        before = self.seen()
        with pytest.raises(ValueError, match="^tokens: expected an end within a block"):
            self.tables.truncate(sequence, tokens)
        assert self.seen() == before
        return True

    def some(self, data):
        return data.draw(st.sampled_from(sorted(self.kept)), label="sequence")

    def seen(self):
        tables = {sequence: (self.tables.table(sequence), self.tables.length(sequence)) for sequence in self.kept}
        references = [self.tables.references(block) for block in range(self.tables.num_blocks)]
        return tables, references, self.tables.free_blocks, self.tables.sequences

    @rule(tokens=st.integers(0, 9))
    def start(self, tokens):
        sequence = self.tables.add_sequence()
        self.add(sequence, [])
        self.grow({sequence: tokens})

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def append(self, data):
        self.grow({self.some(data): data.draw(st.integers(0, 6), label="tokens")})

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def decode(self, data):
        """One token more for each of several sequences."""
        left_out = data.draw(st.sets(st.sampled_from(sorted(self.kept))), label="left out")
        self.grow({sequence: 1 for sequence in self.kept if sequence not in left_out})

    def grow(self, growth):
        needed, before = self.tables.blocks_needed(growth), self.seen()
        try:
            slots, copies = self.tables.append_all(growth)
        except OutOfBlocks:
            assert needed > before[2] and self.seen() == before
            return
        left = [source for source, _ in copies if self.tables.references(source) == 0]
        assert self.tables.free_blocks == before[2] - needed + len(left)
        for source, target in copies:
            assert (before[1][source] > 1 or self.may_not_change(source)) and before[1][target] == 0
            for offset in range(self.tables.block_size):
                self.memory[target, offset] = self.memory.get((source, offset))
        new = [(sequence, next(self.names)) for sequence, tokens in growth.items() for _ in range(tokens)]
        assert len(slots) == len(new)
        for slot, (sequence, token) in zip(slots, new, strict=True):
            assert self.tables.references(slot[0]) == 1, "a shared block is never written to"
            self.memory[slot] = token
            self.kept[sequence].append(token)

    def may_not_change(self, block):
        return False

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def fork(self, data):
        sequence = self.some(data)
        free = self.tables.free_blocks
        child = self.tables.fork(sequence)
        assert self.tables.free_blocks == free, "sharing costs nothing"
        self.add(child, self.kept[sequence][:], self.dropped[sequence])
        if data.draw(st.booleans(), label="both go on"):
            self.grow({sequence: 1, child: 1})

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def truncate(self, data):
        sequence = self.some(data)
        tokens = data.draw(st.integers(0, len(self.kept[sequence])), label="tokens")
        if self.ends_in_a_dropped_block(sequence, tokens):
            return
        self.tables.truncate(sequence, tokens)
        del self.kept[sequence][tokens:]
        self.dropped[sequence] = {i for i in self.dropped[sequence] if i * self.tables.block_size < tokens}

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def drop(self, data):
        sequence = self.some(data)
        full = len(self.kept[sequence]) // self.tables.block_size
        stop = data.draw(st.integers(0, full), label="stop")
        blocks = range(data.draw(st.integers(0, stop), label="start"), stop)
        self.tables.drop(sequence, blocks)
        self.dropped[sequence].update(blocks)
        before = self.seen()
        with pytest.raises(ValueError, match="^blocks: expected an integer"):
            self.tables.drop(sequence, range(full + 1))
        assert self.seen() == before

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def free(self, data):
        sequence = self.some(data)
        self.tables.free(sequence)
        del self.kept[sequence]
        before = self.seen()
        with pytest.raises(ValueError, match="sequence"):
            self.tables.free(sequence)
        assert self.seen() == before

    @precondition(lambda self: self.tables is not None)
    @invariant()
    def what_is_read_is_what_was_written(self):
        size, reachable = self.tables.block_size, set()
        for sequence, tokens in self.kept.items():
            table = self.tables.table(sequence)
            assert {index for index, block in enumerate(table) if block < 0} == self.dropped[sequence]
            left = [i for i in range(self.tables.length(sequence)) if i // size not in self.dropped[sequence]]
            slots = [(table[i // size], i % size) for i in left]
            assert [self.memory[slot] for slot in slots] == [tokens[i] for i in left]
            reachable.update(slots)
        assert self.tables.filled_slots == len(reachable)

    @precondition(lambda self: self.tables is not None)
    @invariant()
    def no_block_is_lost_or_counted_wrongly(self):
        owners = Counter(block for sequence in self.kept for block in self.tables.table(sequence) if block >= 0)
        for block in range(self.tables.num_blocks):
            assert self.tables.references(block) == owners[block]
        assert self.tables.used_blocks == len(owners)
        assert self.tables.free_blocks == self.tables.num_blocks - len(owners)
        assert self.tables.sequences == tuple(self.kept)
        for sequence, tokens in self.kept.items():
            assert len(self.tables.table(sequence)) == -(-len(tokens) // self.tables.block_size)

    def teardown(self):
        for sequence in self.kept:
            self.tables.free(sequence)
        assert self.tables is None or self.tables.free_blocks == self.tables.num_blocks


TestPaging = Paging.TestCase
TestPaging.settings = settings(derandomize=True, deadline=None, database=None, max_examples=100, stateful_step_count=40)
