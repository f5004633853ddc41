"""The recorded runs on images at tiny sizes: everything is measured, and what is counted is counted again."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from attn_book.corpus import COLOURS, HELD_PAIRS, SHAPES, TRAINED_PAIRS, centred, draw_scenes
from attn_core import capture_attention
from recorded import captions, connector, contrast, hard_captions, images

TINY = {"TESTED": 20, "FEW": 10, "SEEDS": (0,)}


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    for script in (images, captions, hard_captions, contrast, connector):
        for name, size in TINY.items():
            monkeypatch.setattr(script, name, size)
    monkeypatch.setattr(images, "POINTS", 2)
    monkeypatch.setattr(images, "PICTURES", (32, 16))
    monkeypatch.setattr(
        images, "JOBS", [("left", "vit without positions", 32), ("framed", "vit", 32), ("framed", "cnn", 16)]
    )
    monkeypatch.setattr(images, "SETTINGS", images.SETTINGS | {"seen": 64, "batch_size": 32})
    for script in (captions, hard_captions, contrast, connector):
        small = {"pictures": 32, "epochs": 1, "batch_size": 16}
        monkeypatch.setattr(
            script, "SETTINGS", {name: small.get(name, value) for name, value in script.SETTINGS.items()}
        )
    monkeypatch.setattr(contrast, "BATCH_SIZE", 16)
    monkeypatch.setattr(connector, "EPOCHS", dict.fromkeys(connector.EPOCHS, 1))


def shares(value):
    """All numbers that are shares."""
    if isinstance(value, dict):
        return [share for each in value.values() for share in shares(each)]
    return [value] if isinstance(value, float) else []


def loaded(folder, file, prefix):
    """The weights of one model in a file of them."""
    kept = load_file(folder / f"{file}.safetensors")
    return {name.removeprefix(prefix): each for name, each in kept.items() if name.startswith(prefix)}


def test_images_at_tiny_sizes(tiny, tmp_path):
    found = images.run(tmp_path)
    assert json.dumps(found, allow_nan=False) and ": true" not in json.dumps(found["runs"])
    bag, vit, cnn = found["runs"]
    assert [(run["task"], run["kind"], run["pictures"]) for run in found["runs"]] == images.JOBS
    assert [run["steps"] for run in found["runs"]] == [2, 2, 4]
    assert bag["trained"].keys() == {"colour", "shape", "both", "second", "shuffled"}
    assert vit["trained"].keys() == vit["held"].keys() >= {"shuffled", "share_of_area", "on_object", "painted"}
    assert vit["trained"]["on_object"].keys() == {"layer_1", "layer_2", "rollout"}
    assert vit["trained"]["painted"].keys() == {"own", "others", "most_attended", "most_attended_others"}
    assert vit["positions"].keys() == {"same_row", "same_column", "neither"} and "positions" not in cnn
    for run in found["runs"]:
        assert all(-1e-6 <= share <= 1 + 1e-6 for sort in images.SORTS for share in shares(run[sort]))
    images.classifier("framed", "vit").load_state_dict(loaded(tmp_path, "images", "framed."))


def test_without_positions_exchanged_objects_change_nothing():
    """What the ceiling of one half rests on: the same bag of patches, the same answer."""
    torch.manual_seed(0)
    model, drawn = images.classifier("left", "vit without positions").eval(), draw_scenes(8)
    pictures = centred(drawn.images)
    with torch.no_grad():
        torch.testing.assert_close(model(images.shuffle(pictures, 12)), model(pictures), atol=1e-4, rtol=1e-4)
        assert (model(images.shuffle(pictures, 8)) - model(pictures)).abs().max() > 1e-2  # cut objects are another bag


def test_the_second_object_is_counted():
    drawn = draw_scenes(40)
    words = torch.tensor([images.VOCAB.encode(caption[-2:]) for caption in drawn.captions])

    def second(pictures):
        return functional.one_hot(words[: len(pictures)], len(images.VOCAB))

    found = images.answered(second, drawn, torch.zeros(40, 3, 48, 48))
    assert found["second"] == 1.0 and found["both"] == 0.0


def test_contrast_at_tiny_sizes(tiny, tmp_path):
    found = contrast.run(tmp_path)
    assert json.dumps(found, allow_nan=False)
    assert [run["loss"] for run in found["runs"]] == ["softmax", "sigmoid"]
    assert [run["bias"] == 0.0 for run in found["runs"]] == [True, False]


def test_a_perfect_pair_retrieves_everything():
    """A model whose vectors are the words themselves."""

    class Perfect:
        def embed_texts(self, tokens, lengths):
            return functional.one_hot(tokens[:, 1:3], len(contrast.VOCAB)).sum(1).float()

        def embed_images(self, pictures):
            return self.embed_texts(shown.pop(0), None)

    drawn = draw_scenes(30, objects=1)
    shown = [torch.tensor([contrast.VOCAB.encode(caption) for caption in drawn.captions])]
    assert contrast.retrieved(Perfect(), drawn) == dict.fromkeys(("both", "colour", "shape", "pictures"), 1.0)


def test_captions_at_tiny_sizes(tiny, tmp_path):
    found = captions.run(tmp_path)
    assert json.dumps(found, allow_nan=False) and ": true" not in json.dumps(found["runs"])
    assert [run["kind"] for run in found["runs"]] == ["hard", "soft"]
    warm = hard_captions.run(tmp_path)
    for run in (*found["runs"], warm["start"], *warm["runs"]):
        for name in ("trained", "held"):
            assert set(run[name]) == {"exact", "alignment_error", "on_object", "article_on_object", "words"}
            assert set(run[name]["words"]) == {"colour", "shape", "relation", "shape_after_another_colour"}
            assert all(0 <= share <= 1 for share in shares(run[name]))
            assert found["guesses"][name]["any_named_object"] < found["guesses"][name]["any_region"] < 1
    for run in (found["runs"][0], *warm["runs"]):  # all of a word's weight lies on one region
        assert run["trained"]["on_object"] == pytest.approx(1 - run["trained"]["alignment_error"], abs=1e-3)
    captions.captioner("soft").load_state_dict(loaded(tmp_path, "captions", "captioner."))
    captions.captioner("hard").load_state_dict(loaded(tmp_path, "hard_captions", "hard."))


def test_connector_at_tiny_sizes(tiny, tmp_path):
    contrast.run(tmp_path)
    found = connector.run(tmp_path)
    assert json.dumps(found, allow_nan=False) and ": true" not in json.dumps(found["runs"])
    assert [run["kind"] for run in found["runs"]] == ["text", "connector", *connector.KINDS]
    model = connector.Describer(connector.eye(tmp_path), connector.writer())
    left_out = model.load_state_dict(loaded(tmp_path, "connector", "describer."), strict=False)
    assert not left_out.unexpected_keys and all(name.startswith("eye.") for name in left_out.missing_keys)


def test_the_patches_see_all_or_what_is_before_them():
    """The logits of the text change with the order of the patches only through the mask and the positions."""
    torch.manual_seed(0)
    model = connector.Describer(images.vit(12), connector.writer()).eval()
    pictures, tokens = centred(draw_scenes(2).images), torch.tensor([[1, 5, 9], [1, 6, 7]])
    with torch.no_grad(), capture_attention(model.writer) as causal:
        model(pictures, None, tokens)
    model.patches_see_all = True
    with torch.no_grad(), capture_attention(model.writer) as full:
        model(pictures, None, tokens)
    for maps, later in ((causal, 0), (full, 16 * 15 // 2)):
        (weights,) = next(iter(maps.values()))
        seen = weights[0, 0] > 0
        assert seen[16:].tolist() == [[True] * (17 + row) + [False] * (2 - row) for row in range(3)]
        assert int(seen[:16, :16].triu(1).sum()) == later and not seen[:16, 16:].any()


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


def test_alike_finds_rows_and_columns():
    """Vectors of rows alone: those of one row are the same."""
    rows = torch.eye(4)[torch.arange(16) // 4]
    found = images.alike(rows)
    assert found["same_row"] == pytest.approx(1.0) and found["same_column"] == pytest.approx(-1 / 3)
    assert set(found) == {"same_row", "same_column", "neither"}
