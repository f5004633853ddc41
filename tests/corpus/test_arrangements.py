"""Arrangements against their captions: what the words say is found again in the pixels."""

from dataclasses import replace

import pytest
import torch

from attn_book.corpus.arrangements import RELATIONS, Seen, draw_arrangements, judged, recognise
from attn_book.corpus.drawings import COLOURS, HELD_PAIRS, PAPER, SHAPES, TRAINED_PAIRS

DRAWN = draw_arrangements(300, seed=3)


def read(caption):
    """Objects and relation of a caption, read from its words alone."""
    text = " ".join(caption)
    relation = next((k for k, name in enumerate(RELATIONS) if f" {name} " in text), -1)
    objects = [
        (list(COLOURS).index(a), SHAPES.index(b)) for a, b in zip(caption, caption[1:], strict=False) if a in COLOURS
    ]
    return objects, relation


def test_the_same_seed_draws_the_same():
    state = torch.get_rng_state()
    again, other = draw_arrangements(300, seed=3), draw_arrangements(300, seed=4)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(DRAWN.images, again.images) and DRAWN.captions == again.captions
    assert not torch.equal(DRAWN.images, other.images) and DRAWN.captions != other.captions


def test_a_caption_says_what_is_drawn_and_where():
    lone = 0
    for i, (caption, seen) in enumerate(zip(DRAWN.captions, recognise(DRAWN.images), strict=True)):
        objects, relation = read(caption)
        lone += len(objects) == 1
        assert sorted((one.colour, one.shape) for one in seen) == sorted(objects)
        assert DRAWN.relations[i] == relation and (relation < 0) == (len(objects) == 1)
        centres = []
        for k in range(len(objects)):
            assert (DRAWN.colours[i, k], DRAWN.shapes[i, k]) == objects[k]
            ys, xs = DRAWN.masks[i, k].nonzero().float().mean(0)
            centres.append((xs, ys))
        if relation >= 0:
            axis, sign = relation // 2, (-1) ** (relation % 2)
            assert sign * (centres[1][axis] - centres[0][axis]) > 8
        else:
            assert not DRAWN.masks[i, 1].any() and DRAWN.colours[i, 1] == DRAWN.shapes[i, 1] == -1
    assert 30 < lone < 90


def test_masks_cover_the_ink():
    """A pixel belongs to an object if at least half of it is inked, and paper and ink differ by 0.95 at most."""
    ink, covered = (DRAWN.images - PAPER).abs().amax(1), DRAWN.masks.any(1)
    assert ink[~covered].max() < 0.48 and ink[covered].min() > 0.15


def test_words_are_given_their_objects():
    caption = DRAWN.captions[next(i for i in range(300) if DRAWN.relations[i] == 0)]
    (i,) = {DRAWN.captions.index(caption)}
    assert [(caption[place], k) for place, k in DRAWN.named(i)] == [
        (word, k) for k, pair in enumerate(read(caption)[0]) for word in (list(COLOURS)[pair[0]], SHAPES[pair[1]])
    ]


@pytest.mark.parametrize("pairs", [HELD_PAIRS, TRAINED_PAIRS])
def test_only_the_wanted_pairs_are_drawn(pairs):
    drawn = draw_arrangements(300, pairs=pairs, single=0.0)
    found = {(list(COLOURS)[c], SHAPES[s]) for i in range(300) for c, s in read(drawn.captions[i])[0]}
    assert found <= set(pairs) and len(found) > 0.9 * len(pairs)


def test_real_pictures_are_judged_right_and_others_not():
    assert set(judged(DRAWN.images, DRAWN).values()) == {1.0}
    flipped = judged(DRAWN.images.flip(-1, -2), DRAWN)  # both axes: every order is turned round
    assert flipped["colour"] > 0.95
    lone = (DRAWN.relations < 0).float().mean().item()
    assert flipped["placed"] <= lone + 1e-6
    empty = torch.full_like(DRAWN.images, PAPER)
    assert set(judged(empty, DRAWN).values()) == {0.0}
    assert recognise(empty) == [[]] * 300


def test_one_object_too_many_is_not_placed():
    two = next(i for i in range(300) if DRAWN.relations[i] >= 0 and DRAWN.captions[i][1] != "orange")
    objects, _ = read(DRAWN.captions[two])
    asked = replace(
        DRAWN,
        images=DRAWN.images[two : two + 1],
        colours=torch.tensor([[objects[0][0], -1]]),
        shapes=torch.tensor([[objects[0][1], -1]]),
        relations=torch.tensor([-1]),
    )
    scores = judged(asked.images, asked)
    assert scores["all"] == 1.0 and scores["placed"] == 0.0


def test_noise_changes_nothing_that_is_recognised():
    noisy = DRAWN.images + 0.05 * torch.randn(DRAWN.images.shape, generator=torch.Generator().manual_seed(0))
    assert recognise(noisy) == recognise(DRAWN.images)
    assert isinstance(recognise(noisy)[0][0], Seen)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("count", {"count": 0}),
        ("seed", {"seed": -1}),
        ("single", {"single": 1.5}),
        ("pairs", {"pairs": [("red", "egg")]}),
        ("pairs", {"pairs": [("red", "star")]}),
    ],
)
def test_bad_input_is_named(name, options):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        draw_arrangements(**{"count": 3} | options)
