"""The recorded run of transfer: what is told and what is asked."""

import pytest
import torch

from attn_book.pretrain import pack
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


def test_features_are_of_the_first_token_and_of_the_words_alone(world):
    encoder = transfer.new_encoder(world, 0).eval()
    texts = world.tasks["next sentence"]["test"][:3]
    found = transfer.features(encoder, texts, world.vocab)
    for number, text in enumerate(texts):
        tokens, segments = pack(text, world.vocab)
        x = encoder(tokens[None], torch.tensor([len(tokens)]), segments[None])[0]
        words = tokens >= len(world.vocab.SPECIALS)
        torch.testing.assert_close(found["frozen"][number], x[0])
        torch.testing.assert_close(found["frozen, mean"][number], x[words].mean(0))
