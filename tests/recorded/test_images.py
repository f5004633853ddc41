"""The recorded runs on pictures at tiny sizes: everything is measured, and what is counted is counted again."""

import json

import pytest
import torch
from safetensors.torch import load_file

from attn_book.corpus import COLOURS, HELD_PAIRS, SHAPES, TRAINED_PAIRS, draw_scenes
from recorded import captions, images


class Pool:
    """Work one after the other, in this process, where the sizes below hold."""

    def __init__(self, *about):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *about):
        pass

    map = staticmethod(map)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    for script in (images, captions):
        monkeypatch.setattr(script, "SEEDS", (0,))
        for name, size in {"TESTED": 20, "FEW": 10}.items():
            monkeypatch.setattr(script, name, size)
    monkeypatch.setattr(images, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(images, "POINTS", 2)
    monkeypatch.setattr(images, "OPTIONS", {"vit": (12,), "pair": (16,)})
    monkeypatch.setattr(images, "LAYERS", images.LAYERS | {"num_layers": 1})
    small = {"pictures": 32, "epochs": 2}
    for name in ("vit", "pair"):
        monkeypatch.setitem(images.SETTINGS, name, images.SETTINGS[name] | small)
    monkeypatch.setattr(captions, "SETTINGS", captions.SETTINGS | small)


def shares(value):
    """All numbers that are shares."""
    if isinstance(value, dict):
        return [share for each in value.values() for share in shares(each)]
    return [value] if isinstance(value, float) else []


def test_images_at_tiny_sizes(tiny, tmp_path):
    found = images.run(tmp_path)
    assert json.dumps(found, allow_nan=False)
    assert ": true" not in json.dumps({name: found[name] for name in ("vit", "pair")})
    (vit,), (pair,) = found["vit"], found["pair"]
    assert vit["trained"].keys() == vit["held"].keys() >= {"colour", "shape", "share_of_area", "on_object", "painted"}
    assert vit["trained"]["on_object"].keys() == {"layer_1", "rollout"}
    assert vit["trained"]["painted"].keys() == {"own", "others", "most_attended", "most_attended_others"}
    assert [point["step"] for point in vit["curve"]] == [1.0, 2.0] and len(vit["losses"]) == 2
    assert set(vit["positions"]["steps"]) == {str(n) for n in range(1, 7)}
    assert all(
        0 <= share <= 1 for name in ("trained", "held") for share in shares([vit, pair][0][name]) + shares(pair[name])
    )
    for name, pairs in (("trained", TRAINED_PAIRS), ("held", HELD_PAIRS)):
        assert set(pair[name]["by_pair"]) <= {" ".join(each) for each in pairs}
        assert pair[name]["among_own"] >= pair[name]["both"]
        assert pair[name]["interval"][0] <= pair[name]["both"] <= pair[name]["interval"][1]
    low, high = found["pair_over_pairs"]["16"]["held"]
    assert low <= sum(pair["held"]["by_pair"].values()) / len(pair["held"]["by_pair"]) <= high
    kept = load_file(tmp_path / "images.safetensors")
    model = images.vit(12)
    model.load_state_dict({name.removeprefix("vit."): value for name, value in kept.items()})
    assert all(value.dtype == torch.float16 for value in kept.values())


def test_captions_at_tiny_sizes(tiny, tmp_path):
    found = captions.run(tmp_path)
    assert ": true" not in json.dumps(found, allow_nan=False)
    assert [run["kind"] for run in found["runs"]] == ["hard", "soft"]
    for run in found["runs"]:
        for name in ("trained", "held"):
            assert set(run[name]) == {"exact", "alignment_error", "on_object", "article_on_object", "words"}
            assert set(run[name]["words"]) == {"colour", "shape", "relation", "shape_after_another_colour"}
            assert all(0 <= share <= 1 for share in shares(run[name]))
            assert found["guesses"][name]["any_named_object"] < found["guesses"][name]["any_region"] < 1
    hard = found["runs"][0]["trained"]  # all of a word's weight lies on one region
    assert hard["on_object"] == pytest.approx(1 - hard["alignment_error"], abs=1e-3)
    kept = load_file(tmp_path / "captions.safetensors")
    captions.captioner("soft").load_state_dict({name.removeprefix("captioner."): each for name, each in kept.items()})


def test_another_colour_makes_pairs_that_were_trained():
    for caption in draw_scenes(50, pairs=HELD_PAIRS).captions:
        other = captions.another_colour(caption)
        for at, word in enumerate(caption):
            if word in COLOURS:
                assert other[at] != word and (other[at], other[at + 1]) in TRAINED_PAIRS
                assert (other[at - 1] == "an") == (other[at] == "orange")
            elif word not in ("a", "an"):
                assert other[at] == word
    assert captions.another_colour(("a", "pink", SHAPES[0]))[:2] == ("a", "red")
    names = list(COLOURS)
    for colour, shape in HELD_PAIRS:  # the next colour but one, for the next was never seen with this shape
        before = names[names.index(colour) - 1]
        assert captions.another_colour(("a", before, shape))[1] not in (before, colour)


def test_the_weight_on_an_object_is_that_of_all_its_regions(monkeypatch):
    drawn = draw_scenes(20)
    even = [torch.full((len(caption) + 1, 36), 1 / 36) for caption in drawn.captions]
    monkeypatch.setattr(captions, "region_maps", lambda model, batches: even)
    found = captions.described(captions.captioner("soft"), drawn)
    assert found["on_object"] == pytest.approx(1 - captions.guesses(drawn)["any_region"])


def test_a_picture_is_also_asked_about_the_pairs_of_its_own_sort(tiny, monkeypatch):
    asked, named = [], images.named
    monkeypatch.setattr(images, "named", lambda model, drawn, pairs: asked.append(pairs) or named(model, drawn, pairs))
    images.contrast(16, 0)
    assert asked[-4:] == [images.EVERY_PAIR, list(TRAINED_PAIRS), images.EVERY_PAIR, list(HELD_PAIRS)]


def test_a_guess_is_as_wrong_as_chance_makes_it():
    """Guessing often, at random."""
    drawn = draw_scenes(300)
    by, wrong = torch.Generator().manual_seed(1), {"any_region": [], "any_named_object": []}
    for link in drawn.links():
        objects = sorted({region for region, _ in link})
        for word in {word for _, word in link}:
            true = {region for region, other in link if other == word}
            guess = (
                int(torch.randint(36, (), generator=by)),
                objects[int(torch.randint(len(objects), (), generator=by))],
            )
            for name, region in zip(wrong, guess, strict=True):
                wrong[name].append(region not in true)
    for name, expected in captions.guesses(drawn).items():
        assert sum(wrong[name]) / len(wrong[name]) == pytest.approx(expected, abs=0.05)


def test_the_interval_is_where_the_normal_one_of_the_share_just_reaches():
    low, high = images.wilson(45, 50)
    for edge in (low, high):
        assert abs(0.9 - edge) == pytest.approx(1.96 * (edge * (1 - edge) / 50) ** 0.5)
    assert images.wilson(50, 50)[1] == pytest.approx(1.0) and images.wilson(0, 50)[0] == pytest.approx(0.0)


def test_alike_finds_rows_and_columns():
    """Vectors of rows alone: those of one row are the same."""
    rows = torch.eye(4)[torch.arange(16) // 4]
    found = images.alike(rows)
    assert found["same_row"] == pytest.approx(1.0) and found["same_column"] == pytest.approx(-1 / 3)
    assert found["steps"]["1"] == pytest.approx((1 - 1 / 3) / 2) and set(found["steps"]) == {
        str(n) for n in range(1, 7)
    }
