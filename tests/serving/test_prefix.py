"""Blocks that are found by their content: random histories against a dictionary, then hits, eviction and misses."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from attn_core.serving import Engine, PrefixTables, Request
from tests.cache.test_block_tables_machine import Paging
from tests.serving.models import plain, shared_model


class PrefixPaging(Paging):
    """What was registered is found later, in blocks that hold it still, or not at all."""

    kind = PrefixTables

    def __init__(self):
        super().__init__()
        self.texts, self.registered = [], {}

    def may_not_change(self, block):
        return any(block in blocks for blocks in self.registered.values())

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def register(self, data):
        sequence = self.some(data)
        tokens = [*self.kept[sequence], -1]
        self.tables.register(sequence, tokens)
        self.texts.append(tokens)
        self.registered[len(self.texts)] = self.tables.table(sequence)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def again(self, data):
        tokens = data.draw(st.sampled_from(self.texts))
        free = self.tables.free_blocks
        sequence = self.tables.add_sequence(tokens)
        found = self.tables.length(sequence)
        assert found % self.tables.block_size == 0 and found < len(tokens)
        taken = [block for block in self.tables.table(sequence) if self.tables.references(block) == 1]
        assert self.tables.free_blocks == free - len(taken)
        self.add(sequence, tokens[:found])  # and the invariants compare it with what was written there


PrefixPaging.TestCase.settings = settings(
    derandomize=True, deadline=None, database=None, max_examples=60, stateful_step_count=40
)
TestPrefixPaging = PrefixPaging.TestCase
del Paging  # its own tests run where it is written


def filled(tables, tokens):
    """A sequence of these tokens, registered; and how many of them were found."""
    sequence = tables.add_sequence(tokens)
    found = tables.length(sequence)
    tables.append(sequence, len(tokens) - found)
    tables.register(sequence, tokens)
    return sequence, found


def test_a_beginning_is_shared_while_it_is_used_and_found_when_it_is_not():
    tables = PrefixTables(8, 2)
    first, found = filled(tables, [1, 2, 3, 4, 5])
    assert found == 0
    second, found = filled(tables, [1, 2, 3, 4, 6, 7])
    assert found == 4 and tables.table(second)[:2] == tables.table(first)[:2]
    assert tables.references(tables.table(first)[0]) == 2
    tables.free(first)
    tables.free(second)
    assert tables.free_blocks == 8
    third, found = filled(tables, [1, 2, 3, 4, 6, 7, 8])
    assert found == 6 and tables.free_blocks == 4


def test_a_block_is_the_same_only_behind_the_same_blocks():
    tables = PrefixTables(8, 2)
    filled(tables, [1, 2, 3, 4])
    for tokens in ([3, 4], [0, 2, 3, 4], [2, 1], [1]):
        assert filled(tables, tokens)[1] == 0
    assert filled(tables, [1, 2, 4, 3])[1] == 2


def test_the_least_recently_used_is_forgotten_first_and_ends_before_beginnings():
    tables = PrefixTables(6, 2)
    for start in (10, 20):
        tables.free(filled(tables, [start, 1, 2, 3])[0])
    tables.free(filled(tables, [10, 1, 2, 3])[0])  # used again
    large = tables.add_sequence()
    tables.append(large, 6)  # the two blocks that hold nothing, and one more
    tables.free(large)
    assert tables.length(tables.add_sequence([10, 1, 2, 3])) == 4
    assert tables.length(tables.add_sequence([20, 1, 2, 3])) == 2


def test_a_sequence_that_was_cut_does_not_change_what_can_be_found():
    tables = PrefixTables(4, 2)
    sequence, _ = filled(tables, [1, 2, 3, 4])
    old = tables.table(sequence)
    tables.truncate(sequence, 3)
    assert tables.blocks_needed({sequence: 1}) == 1
    (slot,), copies = tables.append(sequence, 1)
    assert copies == [(old[1], slot[0])] and slot[0] != old[1]
    tables.register(sequence, [1, 2, 3, 9])
    assert tables.table(tables.add_sequence([1, 2, 3, 4])) == old
    assert tables.table(tables.add_sequence([1, 2, 3, 9])) == [old[0], slot[0]]


def test_fewer_tokens_than_the_sequence_has_are_refused():
    tables = PrefixTables(4, 2)
    sequence, _ = filled(tables, [1, 2, 3])
    with pytest.raises(ValueError, match="tokens: expected an integer of at least 3, got 2"):
        tables.register(sequence, [1, 2])
    with pytest.raises(ValueError, match="sequence: expected one of"):
        tables.register(sequence + 1, [1, 2])


def test_the_engine_reads_a_shared_beginning_once():
    start = (3, 4, 5, 6, 7, 8, 9, 10, 11)
    requests = [Request((*start, i), 4) for i in range(4)]
    reused = {}
    for prefix_caching in (True, False):
        engine = Engine(shared_model(), num_blocks=30, block_size=4, prefix_caching=prefix_caching)
        for request in requests:
            completion = engine.add(request)
            engine.run()
            assert completion.ids == plain(request.prompt, 4)[0]
        reused[prefix_caching] = engine.scheduler.reused
        assert engine.tables.free_blocks == 30
    assert reused == {True: 3 * 8, False: 0}
