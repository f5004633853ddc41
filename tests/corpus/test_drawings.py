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
