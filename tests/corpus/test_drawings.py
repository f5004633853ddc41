"""Pictures against their captions: what the words say is counted again in the pixels."""

import pytest
import torch

from attn_book.corpus import (
    COLOURS,
    HELD_PAIRS,
    SHAPES,
    SIZE,
    TRAINED_PAIRS,
    DrawingBatches,
    centred,
    draw_marked,
    draw_scenes,
)
from attn_book.corpus.drawings import tiles
from attn_book.data import Vocab

CLEAN = {"noise": 0.0}


def objects_of(caption):
    return [(word, caption[i + 1]) for i, word in enumerate(caption) if word in COLOURS]


def test_pairs_are_divided():
    assert set(HELD_PAIRS) | set(TRAINED_PAIRS) == {(c, s) for c in COLOURS for s in SHAPES}
    assert len(HELD_PAIRS) == 8 and len(TRAINED_PAIRS) == 56
    assert {c for c, _ in HELD_PAIRS} == set(COLOURS) and {s for _, s in HELD_PAIRS} == set(SHAPES)


@pytest.mark.parametrize("draw", [draw_scenes, draw_marked])
def test_the_same_seed_draws_the_same(draw):
    state = torch.get_rng_state()
    one, same, other = draw(20, seed=4), draw(20, seed=4), draw(20, seed=5)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(one.images, same.images) and one.captions == same.captions
    assert not torch.equal(one.images, other.images) and one.captions != other.captions


@pytest.mark.parametrize("draw", [draw_scenes, draw_marked])
def test_only_the_wanted_pairs_are_drawn(draw):
    for pairs in (HELD_PAIRS, TRAINED_PAIRS):
        drawn = draw(300, pairs=pairs)
        named = {pair for caption in drawn.captions for pair in objects_of(caption)}
        assert named <= set(pairs)
        assert len(named) == len(pairs) or len(pairs) == 56 and len(named) > 50


def test_a_mask_has_the_colour_of_its_word():
    """The nearest of the eight colours, grey and paper, to the mean of the mask's eight pixels farthest from paper."""
    names = [*COLOURS, "grey", "paper"]
    palette = torch.tensor([*COLOURS.values(), (0.62,) * 3, (0.95,) * 3])
    drawn = draw_scenes(300)
    for i, caption in enumerate(drawn.captions):
        for k, (colour, shape) in enumerate(objects_of(caption)):
            pixels = drawn.images[i][:, drawn.masks[i, k]].T
            mean = pixels[(pixels - 0.95).square().sum(1).topk(8).indices].mean(0)
            nearest = names[(palette - mean).square().sum(1).argmin()]
            assert nearest == colour, caption
            assert [list(COLOURS)[drawn.colours[i, k]], SHAPES[drawn.shapes[i, k]]] == [colour, shape]


def test_a_mask_has_the_shape_of_its_word():
    """Each mask, cut out by its box, is one of its own shape's three sizes as they are drawn."""
    drawn, covered = draw_scenes(300, objects=3), tiles(10) >= 0.5
    looks = {}
    for s, shape in enumerate(SHAPES):
        for look in covered[s]:
            rows, columns = look.any(1).nonzero(), look.any(0).nonzero()
            looks.setdefault(shape, []).append(look[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].tolist())
    boxes = drawn.boxes()
    for i, caption in enumerate(drawn.captions):
        for k, (_, shape) in enumerate(objects_of(caption)):
            left, top, right, bottom = boxes[i, k].tolist()
            assert drawn.masks[i, k, top:bottom, left:right].tolist() in looks[shape]
            assert drawn.masks[i, k].sum() == drawn.masks[i, k, top:bottom, left:right].sum()


def test_shapes_can_be_told_apart():
    covered = tiles(10)
    assert covered.shape == (8, 3, 10, 10) and covered.min() == 0 and covered.max() == 1
    flat = covered.flatten(2)
    for one in range(8):
        for other in range(one):
            # At whatever sizes, seven of a hundred pixels differ in full.
            assert (flat[one][:, None] - flat[other]).abs().sum(-1).min() > 7, (SHAPES[one], SHAPES[other])


def test_areas_are_those_of_geometry():
    side = 100
    area = {shape: a / (side / 2) ** 2 for shape, a in zip(SHAPES, tiles(side)[:, 2].sum((1, 2)).tolist(), strict=True)}
    assert area["circle"] == pytest.approx(3.1416 * 0.9**2, rel=0.01)
    assert area["ring"] == pytest.approx(3.1416 * (0.98**2 - 0.55**2), rel=0.01)
    assert area["square"] == pytest.approx(1.6**2, rel=0.01)
    assert area["diamond"] == pytest.approx(2.0, rel=0.01)
    assert area["bar"] == pytest.approx(1.96 * 0.6, rel=0.01)
    assert area["cross"] == pytest.approx(2 * 1.9 * 0.52 - 0.52**2, rel=0.01)
    assert area["triangle"] == pytest.approx(1.75 * 0.9625, rel=0.02)
    # Ten triangles between the centre, a point at 1.05 and a notch at .42, 36 degrees apart; the feet are cut off.
    assert area["star"] == pytest.approx(5 * 1.05 * 0.42 * 0.5878, rel=0.03)


def test_captions_go_from_left_to_right_and_relations_are_true():
    drawn = draw_scenes(400, objects=3, distractors=1)
    left, top, right, bottom = drawn.boxes().unbind(-1)
    places = torch.stack([(left + right) // 24, (top + bottom) // 24], -1)  # columns and rows of cells
    found = set()
    for i, caption in enumerate(drawn.captions):
        relations = [word for word in caption if word in ("left", "above", "below")]
        assert len(relations) == 2
        for k, relation in enumerate(relations):
            right, down = (places[i, k + 1] - places[i, k]).tolist()
            assert right >= 0
            assert relation == ("left" if right >= abs(down) else "above" if down > 0 else "below")
            found.add(relation)
    assert found == {"left", "above", "below"}


def test_a_caption_reads_as_english():
    words = {" ".join(caption) for caption in draw_scenes(200, pairs=[("orange", "bar"), ("red", "star")]).captions}
    assert "an orange bar left of a red star" in words and "a red star above an orange bar" in words


def test_boxes_and_links_by_loops():
    drawn = draw_scenes(40, **CLEAN)
    for size in (6, 8, 12):
        across = SIZE // size
        for i, links in enumerate(drawn.links(size)):
            expected, k = set(), -1
            for word, text in enumerate(drawn.captions[i]):
                k += text in COLOURS
                if text in COLOURS or text in SHAPES:
                    points = drawn.masks[i, k].nonzero().tolist()
                    for region in range(across**2):
                        inside = [(y, x) for y, x in points if y // size * across + x // size == region]
                        if len(inside) >= 0.1 * len(points):
                            expected.add((region, word))
            assert links == expected
    for i in range(40):
        for k in range(2):
            points = drawn.masks[i, k].nonzero()
            (top, left), (bottom, right) = points.amin(0).tolist(), points.amax(0).tolist()
            assert drawn.boxes()[i, k].tolist() == [left, top, right + 1, bottom + 1]


def test_distractors_are_grey_and_objects_do_not_touch():
    with_them, without = draw_scenes(50, distractors=5, **CLEAN), draw_scenes(50, distractors=0, **CLEAN)
    for drawn, grey in ((with_them, True), (without, False)):
        spread = drawn.images.amax(1) - drawn.images.amin(1)
        drawn_on = drawn.images.mean(1) < 0.9
        assert ((spread < 1e-6) & drawn_on).flatten(1).any(1).all() == grey
        assert (drawn.masks.sum(1) <= 1).all()


def test_the_frame_stands_around_the_named_object():
    drawn = draw_marked(100, **CLEAN)
    dark = drawn.images.amax(1) < 0.15
    for i in range(100):
        rows, columns = dark[i].any(1).nonzero(), dark[i].any(0).nonzero()
        left, top, right, bottom = drawn.boxes()[i, 0].tolist()
        assert rows[-1] - rows[0] == columns[-1] - columns[0] == 11
        assert columns[0] <= left and right <= columns[-1] + 1 and rows[0] <= top and bottom <= rows[-1] + 1
        assert len(drawn.captions[i]) == 3


def test_noise_is_what_was_asked_for():
    noisy, clean = draw_scenes(50, noise=0.02), draw_scenes(50, noise=0.0)
    difference = noisy.images - clean.images
    middle = (clean.images > 0.2) & (clean.images < 0.8)
    assert difference[middle].std() == pytest.approx(0.02, rel=0.03)
    assert noisy.images.amin() >= 0 and noisy.images.amax() <= 1 and noisy.images.dtype == torch.float32


def test_batches_hold_each_picture_once_with_its_words():
    drawn = draw_scenes(23)
    vocab = Vocab(drawn.captions)
    batches = DrawingBatches(drawn, vocab, batch_size=5, patch_size=12, seed=3)
    assert len(batches) == len(list(batches)) == 5
    seen = {}
    for batch in batches.epoch(2):
        assert batch.source_lengths.tolist() == [16] * len(batch)
        for row in range(len(batch)):
            (i,) = [i for i in range(23) if torch.equal(centred(drawn.images[i]), batch.source[row])]
            words, length = vocab.encode(drawn.captions[i]), int(batch.target_lengths[row])
            padding = [Vocab.PAD] * (batch.target_in.shape[1] - length)
            assert batch.target_in[row].tolist() == [Vocab.BOS, *words, *padding]
            assert batch.target_out[row].tolist() == [*words, Vocab.EOS, *padding]
            seen[i] = True
    assert len(seen) == 23

    def first(epoch, seed):
        again = DrawingBatches(drawn, vocab, batch_size=5, seed=seed)
        return next(again.epoch(epoch)).source

    assert torch.equal(first(2, 3), first(2, 3)) and not torch.equal(first(2, 3), first(1, 3))
    assert not torch.equal(first(2, 3), first(2, 4)) and torch.equal(first(0, None), centred(drawn.images[:5]))


def test_centred_paper_is_zero_and_nothing_is_lost():
    """Most of a picture is paper: its values lie around 0, which is what a convolution pads with."""
    drawn = draw_scenes(20)
    before = drawn.images.clone()
    read = centred(drawn.images)
    assert torch.equal(drawn.images, before) and read.dtype == torch.float32
    paper = read[~(drawn.images.amin(1, keepdim=True) < 0.75).expand_as(read)]
    assert paper.median().abs() < 0.05 and paper.mean().abs() < 0.2
    torch.testing.assert_close(read * 0.25 + 0.95, before)


DRAWN = draw_scenes(2)
VOCAB = Vocab(DRAWN.captions)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_scenes(0), "count: expected an integer of at least 1"),
        (lambda: draw_scenes(2, objects=0), "objects: expected an integer of at least 1"),
        (lambda: draw_scenes(2, distractors=-1), "distractors: expected an integer of at least 0"),
        (lambda: draw_scenes(2, objects=9, distractors=8), "objects: expected 16 at most with distractors, got 17"),
        (lambda: draw_scenes(2, noise=-0.1), "noise: expected a finite number of at least 0"),
        (lambda: draw_scenes(2, pairs=[("red", "moon")]), "pairs: expected .* got .'red', 'moon'."),
        (lambda: draw_scenes(2, pairs=["red"]), "pairs: expected .* got 'red'"),
        (lambda: draw_scenes(2, pairs=HELD_PAIRS[:1]), "pairs: expected 2 at least, one for each object, got 1"),
        (lambda: draw_marked(2, seed=-1), "seed: expected an integer of at least 0"),
        (lambda: centred(DRAWN.images.byte()), "images: expected a floating tensor, got torch.uint8"),
        (lambda: DRAWN.links(7), "patch_size: expected a number that divides 48, got 7"),
        (lambda: DrawingBatches(DRAWN, VOCAB, batch_size=0), "batch_size: expected an integer of at least 1"),
        (lambda: DrawingBatches(DRAWN, VOCAB, batch_size=1, patch_size=0), "patch_size: expected an integer of"),
        (lambda: DrawingBatches(DRAWN, VOCAB, batch_size=1, seed=-1), "seed: expected an integer of at least 0"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
