"""The recorded run of transfer: what is told and what is asked."""

import pytest

from recorded import transfer

TINY = transfer.Plan(60, 150, 40, 1, 1, {10: 1, 30: 1})


@pytest.fixture(scope="module")
def world():
    return transfer.World(TINY)


def test_no_sentence_that_is_asked_about_has_been_read(world):
    read = {pair.source for paragraph in world.stories.train for pair in paragraph.sentences}
    for task in ("sense", "order"):
        for texts in world.tasks[task].values():
            assert not read & {tuple(text.first) for text in texts}
            assert [t.label for t in texts].count(1) * 2 == len(texts)


def test_a_bag_of_words_is_right_half_the_time(world):
    for task in ("sense", "order", "entailment"):
        assert transfer.bag_of_words(world.tasks[task], world.vocab, 30) == 0.5
