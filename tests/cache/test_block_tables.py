import pytest

from attn_core.cache import BlockTables, OutOfBlocks


def state(tables):
    """Everything that can be seen of the tables."""
    return (
        {sequence: (tables.table(sequence), tables.length(sequence)) for sequence in tables.sequences},
        [tables.references(block) for block in range(tables.num_blocks)],
        (tables.free_blocks, tables.used_blocks, tables.filled_slots),
    )


def beginning(tables, sequence, tokens):
    """A fork that keeps only the first tokens."""
    child = tables.fork(sequence)
    tables.truncate(child, tokens)
    return child


def test_tokens_go_where_the_table_says():
    tables = BlockTables(6, 4)
    a, b = tables.add_sequence(), tables.add_sequence()
    assert tables.append(a, 3).slots == [(0, 0), (0, 1), (0, 2)]
    assert tables.append(b, 5).slots == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    assert tables.append(a, 3) == ([(0, 3), (3, 0), (3, 1)], [])
    assert tables.table(a) == [0, 3] and tables.table(b) == [1, 2]
    assert tables.length(a) == 6 and tables.length(b) == 5 and tables.sequences == (a, b)
    assert (tables.used_blocks, tables.free_blocks, tables.filled_slots) == (4, 2, 11)


def test_a_table_handed_out_is_a_copy():
    tables = BlockTables(2, 4)
    a = tables.add_sequence()
    tables.append(a, 5)
    tables.table(a).clear()
    assert tables.table(a) == [0, 1]


def test_a_fork_shares_and_the_first_to_write_copies():
    tables = BlockTables(5, 4)
    a = tables.add_sequence()
    tables.append(a, 6)
    b = tables.fork(a)
    assert tables.table(b) == tables.table(a) == [0, 1] and tables.used_blocks == 2
    assert [tables.references(block) for block in range(5)] == [2, 2, 0, 0, 0]
    assert (tables.used_blocks, tables.filled_slots) == (2, 6), "a shared slot counts once"
    slots, copies = tables.append(a, 1)
    assert copies == [(1, 2)] and slots == [(2, 2)], "either owner copies, the older one too"
    assert tables.table(a) == [0, 2] and tables.table(b) == [0, 1]
    assert tables.append(b, 1) == ([(1, 2)], []), "the last owner writes in place"
    assert [tables.references(block) for block in range(5)] == [2, 1, 1, 0, 0]


def test_a_full_shared_block_is_not_copied():
    tables = BlockTables(4, 4)
    a = tables.add_sequence()
    tables.append(a, 4)
    b = tables.fork(a)
    assert tables.append(b, 1) == ([(1, 0)], []) and tables.append(a, 1) == ([(2, 0)], [])
    assert tables.references(0) == 2


def test_a_fork_of_a_prefix_shares_only_its_blocks():
    tables = BlockTables(6, 4)
    a = tables.add_sequence()
    tables.append(a, 10)
    b, nothing = beginning(tables, a, 5), beginning(tables, a, 0)
    assert tables.table(b) == [0, 1] and tables.length(b) == 5 and tables.table(nothing) == []
    assert tables.append(a, 1) == ([(2, 2)], []), "the block that a writes to is its own"
    assert tables.append(b, 1) == ([(3, 1)], [(1, 3)]), "what a has after b's prefix is not b's to overwrite"
    c = beginning(tables, a, 5)
    tables.free(a)
    assert tables.append(c, 1) == ([(1, 1)], []), "once a is gone it is"


def test_truncate_gives_back_what_it_empties():
    tables = BlockTables(4, 2)
    a = tables.add_sequence()
    tables.append(a, 7)
    tables.truncate(a, 7)
    assert tables.table(a) == [0, 1, 2, 3]
    tables.truncate(a, 3)
    assert tables.table(a) == [0, 1] and tables.length(a) == 3 and tables.free_blocks == 2
    assert tables.append(a, 2).slots == [(1, 1), (2, 0)]


def test_running_out_says_so_and_loses_nothing():
    tables = BlockTables(3, 4)
    a, b = tables.add_sequence(), tables.add_sequence()
    tables.append(a, 6)
    before = state(tables)
    message = r"^expected at most 1 new blocks, the free ones of 3, got a need of 2 for 7 tokens$"
    with pytest.raises(OutOfBlocks, match=message):
        tables.append_all({a: 2, b: 5})
    assert state(tables) == before
    tables.append(a, 6)
    c = beginning(tables, a, 11)
    before = state(tables)
    with pytest.raises(OutOfBlocks, match="at most 0 new blocks.* got a need of 1 for 1 tokens"):
        tables.append(c, 1)  # for the copy
    assert state(tables) == before


def test_a_batch_gets_room_for_all_or_for_none():
    tables = BlockTables(4, 2)
    a, b = tables.add_sequence(), tables.add_sequence()
    assert tables.append_all({b: 1, a: 3}) == ([(0, 0), (1, 0), (1, 1), (2, 0)], [])
    before = state(tables)
    with pytest.raises(OutOfBlocks):
        tables.append_all({b: 2, a: 2})  # b alone would find room, and so would a
    with pytest.raises(ValueError, match="sequence"):
        tables.append_all({b: 2, 99: 1})
    with pytest.raises(ValueError, match="tokens"):
        tables.append_all({b: 2, a: -1})
    assert state(tables) == before


def test_of_many_owners_that_write_at_once_the_last_needs_no_copy():
    tables = BlockTables(3, 4)
    a = tables.add_sequence()
    tables.append(a, 2)
    family = [a, tables.fork(a), tables.fork(a)]
    assert tables.blocks_needed({sequence: 1 for sequence in family}) == 2
    assert tables.append_all({sequence: 1 for sequence in family}) == ([(1, 2), (2, 2), (0, 2)], [(0, 1), (0, 2)])
    assert tables.free_blocks == 0


def test_blocks_needed_changes_nothing_and_counts_copies():
    tables = BlockTables(9, 4)
    a = tables.add_sequence()
    tables.append(a, 6)
    tables.fork(a)
    before = state(tables)
    assert [tables.blocks_needed({a: tokens}) for tokens in (0, 1, 2, 3, 7)] == [0, 1, 1, 2, 3]
    assert tables.blocks_needed({}) == 0 and state(tables) == before
