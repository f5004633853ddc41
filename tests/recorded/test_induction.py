"""The recorded run of induction heads, at a tiny size: what it writes, and that it interferes where it says."""

import json
import math

import pytest
import torch

from attn_book.induction import AttentionOnly
from recorded import induction


class InThisProcess:
    """A pool of processes without processes."""

    def __init__(self, *settings):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def map(self, function, *arguments):
        return map(function, *arguments)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    small = {"VOCAB": 8, "LENGTH": 12, "PIECE": (3, 5), "STEPS": 6, "EVERY": 2, "TEST_ROWS": 40, "POSITION_ROWS": 4000}
    small |= {"SIZES": {"model_dim": 8, "num_heads": 2}, "BATCH_SIZE": 4, "SEEDS": (0, 1), "WARMUP": 2}
    for name, value in small.items():
        monkeypatch.setattr(induction, name, value)
    monkeypatch.setattr(induction, "ProcessPoolExecutor", InThisProcess)


def model_of(depth=2):
    torch.manual_seed(5)
    return AttentionOnly(8, model_dim=8, num_heads=2, num_layers=depth)


def test_a_dry_run(tmp_path):
    threads = torch.get_num_threads()
    found = json.loads(json.dumps(induction.run(tmp_path), allow_nan=False))
    torch.set_num_threads(threads)
    assert [(run["layers"], run["seed"]) for run in found["runs"]] == [(2, 0), (1, 0), (2, 1), (1, 1)]
    for run in found["runs"]:
        assert [point["step"] for point in run["curve"]] == [0, 2, 4, 6]
        for point in run["curve"]:
            assert len(point["induction"]) == len(point["previous_token"]) == run["layers"]
        assert [(off["layer"], off["head"]) for off in run["one_off"]] == [
            (layer, head) for layer in range(run["layers"]) for head in (0, 1)
        ]
        assert run["curve"][0]["second"] != run["curve"][-1]["second"]
    assert [run.get("example") is not None for run in found["runs"]] == [True, False, False, False]
    example = found["runs"][0]["example"]
    assert sum(example["first"]) == sum(example["second"]) >= 2
    assert torch.tensor(example["induction"]["weights"]).shape == (12, 12)
    references = found["references"]
    assert references["fresh"] == pytest.approx(math.log(8), abs=1e-4)
    assert references["best_reader"]["second"] < references["best_reader"]["first"]
    each_row = [1 / (t + 1) for t in range(1, 12)]  # an even look back gives the token before its share
    assert references["uniform"]["previous_token"] == pytest.approx(sum(each_row) / 11, abs=1e-4)


def test_the_same_seed_gives_the_same_run():
    first, again = (induction.measure(2, 1) for _ in range(2))
    assert first["curve"] == again["curve"] and first["one_off"] == again["one_off"]
    other = induction.measure(2, 0)["curve"]
    assert other[0] != first["curve"][0]  # before any training: other weights
    assert other != first["curve"]


def test_only_the_head_named_is_off():
    model = model_of()
    plain, off = induction.behaviour(model), induction.heads_off(model)
    assert (
        off[0]["previous_token"] == plain["previous_token"] or off[0]["previous_token"][0] == plain["previous_token"][0]
    )
    assert off[0]["induction"][1] != plain["induction"][1]  # the second layer reads what the first one wrote
    assert off[2]["induction"] == plain["induction"] and off[2]["second"] != plain["second"]
    assert off[0]["second"] != off[1]["second"] and off[2]["second"] != off[3]["second"]
    assert induction.behaviour(model) == plain


def test_hiding_from_values_leaves_the_weights_alone():
    model = model_of()
    plain = induction.behaviour(model)
    hidden = {role: induction.hidden(model, 0, role) for role in ("queries", "keys", "values")}
    assert hidden["values"]["induction"] == pytest.approx(plain["induction"][1])
    assert hidden["values"]["second"] != pytest.approx(plain["second"], abs=1e-6)
    for role in ("queries", "keys"):
        assert hidden[role]["induction"] != pytest.approx(plain["induction"][1], abs=1e-6)
    with torch.no_grad():  # a head that writes nothing is not missed
        model.layers[0].out.weight[:, :4] = 0
    plain = induction.behaviour(model)
    for role in ("queries", "keys", "values"):
        assert induction.hidden(model, 0, role)["second"] == pytest.approx(plain["second"])


def test_the_bend_is_where_the_loss_first_falls_below_half():
    half = math.log(8) / 2
    curve = [{"step": 10 * i, "second": half + by} for i, by in enumerate((1.0, 0.1, -0.1, 0.2, -0.5))]
    assert induction.bend(curve) == 20
    assert induction.bend(curve[:2]) is None


def test_places_alone_tell_little():
    """Against a loop over the sequences themselves."""
    repeats = next(induction.draw(4000, 4321))
    counts = {}
    for early, late in zip(repeats.first.tolist(), repeats.second.tolist(), strict=True):
        for t in range(12):
            if late[t]:
                key = t, late.index(True) - early.index(True)
                counts[key] = counts.get(key, 0) + 1
    best = sum(max([n for (place, _), n in counts.items() if place == t], default=0) for t in range(12))
    assert induction.by_position() == pytest.approx(best / sum(counts.values()))
