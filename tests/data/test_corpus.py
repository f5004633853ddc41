"""The corpus as a whole."""

from attn_core.data import corpus


def test_parts_have_the_sizes_asked_for():
    small = corpus(train=50, valid=10, test=10, structures=8, pronouns=6)
    assert [len(part) for part in (small.train, small.valid, small.test, small.structures, small.pronouns)] == [
        50, 10, 10, 8, 6,
    ]
