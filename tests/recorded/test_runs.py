"""Every recorded script that can be made tiny: it runs to its end, and its record has the shape that pages read."""

import json
from concurrent.futures import Executor, Future
from itertools import product
from pathlib import Path

import pytest
import torch

from attn_book import tatoeba
from attn_book.corpus import corpus, paragraph_corpus
from attn_book.widgets import Translator
from recorded import (
    captions,
    connector,
    context,
    contrast,
    deceive,
    hard_attention,
    images,
    induction,
    luong,
    output_layers,
    positions,
    race,
    real_text,
    scaling_law,
    transfer,
    translators,
    tuning,
)

PLAN = transfer.Plan(60, 150, 40, 1, 1, {10: 1, 30: 1})
REAL = real_text.Plan(paragraphs=0, held=30, tested=20, epochs=1, growing=0, labels={10: 1, 30: 1}, pieces=150, few=40)
CONTEXT = {"TRAIN": 36, "TEST": 18, "STEPS": 2, "POINTS": 2, "BATCH_SIZE": 12, "MODEL_DIM": 16, "HEADS": 2}
CONTEXT |= {"FEED_FORWARD_DIM": 24, "SEEDS": (0, 1)}
INDUCTION = {"VOCAB": 8, "LENGTH": 12, "PIECE": (3, 5), "STEPS": 6, "EVERY": 2, "TEST_ROWS": 40, "POSITION_ROWS": 4000}
INDUCTION |= {"SIZES": {"model_dim": 8, "num_heads": 2}, "BATCH_SIZE": 4, "SEEDS": (0, 1), "WARMUP": 2}
SCALING = {"WIDTHS": (16, 32), "AMOUNTS": (30, 60), "RATES": (0.1, 0.2), "SEEDS": (0, 1), "VALID": 5, "TEST": 8}
RACE = {"KINDS": ("window", "KDA"), "SEEDS": (0, 1), "PAIRS": (2, 4), "MOST_STEPS": 3}


class Here(Executor):
    """Runs what is submitted at once, in this process."""

    def __init__(self, *arguments, **options):
        pass

    def submit(self, function, /, *arguments):
        done = Future()
        done.set_result(function(*arguments))
        return done


def of(module, **constants):
    """The module's constants of a tiny run."""
    return [(module, name, value) for name, value in constants.items()]


def of_images():
    few = {"TESTED": 20, "FEW": 10, "SEEDS": (0,)}
    small = {"pictures": 32, "epochs": 1, "batch_size": 16}
    scripts = (captions, contrast, connector)
    jobs = [("left", "vit without positions", 32), ("framed", "vit", 32), ("framed", "cnn", 16)]
    found = of(
        images, POINTS=2, PICTURES=(32, 16), JOBS=jobs, SETTINGS=images.SETTINGS | {"seen": 64, "batch_size": 32}
    )
    found += [(script, name, value) for script in (images, *scripts) for name, value in few.items()]
    found += [(s, "SETTINGS", s.SETTINGS | {k: v for k, v in small.items() if k in s.SETTINGS}) for s in scripts]
    return found + of(contrast, BATCH_SIZE=16) + of(connector, EPOCHS=dict.fromkeys(connector.EPOCHS, 1))


def words(script, **constants):
    def small(**sizes):
        return corpus(train=96, valid=10, test=10, structures=6)

    return of(script, corpus=small, **constants)


def one_epoch():
    return dict.fromkeys(translators.TRAINING, {"epochs": 1, "learning_rate": 1e-3})


def kinds_of(found, *names):
    return [tuple(run[name] for name in names) for run in found["runs"]]


def check_images(found, folder):
    assert kinds_of(found, "task", "kind", "pictures") == images.JOBS
    for run in found["runs"]:
        assert run["trained"].keys() == run["held"].keys() >= {"colour", "shape", "both", "shuffled"}
    assert {"on_object", "painted"} <= found["runs"][1]["trained"].keys() and "positions" in found["runs"][1]


def check_captions(found, folder):
    for run in found["runs"]:
        for name in ("trained", "held"):
            assert set(run[name]) == {"exact", "alignment_error", "words"}


def check_context(found, folder):
    wanted = [(seed, *each) for seed in (0, 1) for each in context.MODELS]
    assert kinds_of(found, "seed", "form", "told") == wanted
    assert all([point["step"] for point in run["curve"]] == [1, 2] for run in found["runs"])


def check_deceive(found, folder):
    (uniform,), (hiding,) = found["uniform"], found["hiding"]
    assert set(uniform["cut"]) == set(hiding["cut"]) == set(deceive.CUTS) and "weight_on_decisive" not in uniform
    assert 0 < hiding["weight_on_decisive"] < 1
    q, visible = torch.randn(1, 1, 2, 4), torch.tensor([[True, False], [True, True]])
    weights = deceive.Fixed().with_weights(q, q, q, mask=visible)[1]
    assert weights[0, 0].tolist() == [[1.0, 0.0], [0.5, 0.5]]


def check_induction(found, folder):
    assert kinds_of(found, "layers", "seed") == [(2, 0), (1, 0), (2, 1), (1, 1)]
    for run in found["runs"]:
        assert [point["step"] for point in run["curve"]] == [0, 2, 4, 6] and len(run["one_off"]) == 2 * run["layers"]
    assert {"fresh", "uniform", "best_reader"} <= set(found["references"])
    assert torch.tensor(found["runs"][0]["example"]["induction"]["weights"]).shape == (12, 12)


def check_scores(found, folder):
    for run in found["runs"]:
        assert run["seed"] == 0
        for scores in [*run.get("curve", []), *(value for value in run.values() if isinstance(value, dict))]:
            assert 0 <= scores["alignment_error"] <= 1 and 0 <= scores["bleu"] <= 100


def check_race(found, folder):
    """All rates with the first seed, and the one of least loss again with the others."""
    assert kinds_of(found, "kind", "seed") == [(kind, seed) for kind in race.KINDS for seed in (0, 0, 1)]
    for kind in race.KINDS:
        mine = [run for run in found["runs"] if run["kind"] == kind]
        best = min(mine[:2], key=lambda run: run["loss"])["rate"]
        assert all(run["chosen"] == (run["rate"] == best) for run in mine)


def check_scaling(found, folder):
    assert sorted(kinds_of(found, "width", "stories", "seed")) == sorted(product((16, 32), (30, 60), (0, 1)))
    for width in (16, 32):
        tried = {one["learning_rate"]: one["valid"] for one in found["sweep"] if one["width"] == width}
        assert {r["learning_rate"] for r in found["runs"] if r["width"] == width} == {min(tried, key=tried.get)}


def check_transfer(found, folder):
    assert [run["start"] for run in found["runs"]] == list(transfer.STARTS)
    world = transfer.World(PLAN)
    for run in found["runs"]:
        ways = ("tuned", "frozen", "frozen, mean")
        wanted = {(t, w, n) for t in world.tasks for w in ways for n in world.counts(t)}
        assert {(t["task"], t["weights"], t["labels"]) for t in run["tuning"]} == wanted
        assert ("pretraining" in run) == (run["start"] != "scratch")
    assert tuple(found["vocabulary"]) == world.vocab.tokens and (folder / "transfer.safetensors").is_file()


def check_translators(found, folder):
    for kind in translators.TRAINING:
        state = json.loads((folder / "translators" / f"{kind}.json").read_text(encoding="utf-8"))
        assert state["kind"] == kind and Translator(state).picture().startswith(b"\x89PNG")
        assert 0 < found[kind]["logits"]["mean_difference"] < found[kind]["logits"]["greatest_difference"] < 0.2


def real_text_run(folder):
    world = real_text.World(REAL)
    return {start: real_text.measure(start, 0, REAL) for start in real_text.STARTS} | real_text.baselines(world)


def tuning_run(folder):
    """Of our model: the other one is downloaded."""
    world = transfer.World(transfer.Plan(8_000, 200, 40, 1, 1, {30: 1}))
    return tuning.ours(world, Path(tuning.__file__).parent / "results", [(30, 1, 1e-3, False)], (0,))


def positions_run(folder):
    found = {}
    for kind in positions.KINDS:
        model = positions.PlacedModel(positions.LETTERS, kind)
        positions.train(model, "copying", torch.empty(0), seed=0, rate=1e-2, steps=3)
        found[kind] = positions.test_copying(model)
    return found


def has(*names):
    def check(found, folder):
        assert {*names} <= set(found)

    return check


ONE_EPOCH = {"learning_rate": 1e-3, "epochs": 1}
FROZEN = of(transfer, FROZEN_STEPS=3)
RUNS = {  # what is run, with which constants, and what its record must hold
    "captions": (captions.run, of_images(), check_captions),
    "connector": (lambda folder: contrast.run(folder) and connector.run(folder), of_images(), has("runs")),
    "context": (context.run, of(context, **CONTEXT), check_context),
    "deceive": (deceive.run, of(deceive, ORDINARY=60, PRONOUNS=240, SEEDS=(0,), TRAINING=ONE_EPOCH), check_deceive),
    "hard_attention": (hard_attention.run, words(hard_attention, EPOCHS=1), has("runs")),
    "images": (images.run, of_images(), check_images),
    "induction": (induction.run, of(induction, **INDUCTION), check_induction),
    "output_layers": (output_layers.run, words(output_layers, SEEDS=(0,)) + of(luong, EPOCHS=2), check_scores),
    "positions": (positions_run, [], has(*positions.KINDS)),
    "race": (race.run, of(race, **RACE), check_race),
    "real_text": (real_text_run, FROZEN, has(*real_text.STARTS, "neighbours", "by_frequency")),
    "scaling_law": (scaling_law.run, of(scaling_law, **SCALING), check_scaling),
    "transfer": (lambda folder: transfer.run(folder, PLAN, (0,), [(1, 8), (2, 16)]), FROZEN, check_transfer),
    "translators": (translators.run, words(translators, TRAINING=one_epoch(), COMPARED=5), check_translators),
    "tuning": (tuning_run, [], has("before", "tuned")),
}


@pytest.fixture
def tiny(monkeypatch):
    """Threads stay as they are, processes are this one, and the real pairs are stories of the book."""
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    for module in (context, induction, transfer):
        monkeypatch.setattr(module, "ProcessPoolExecutor", Here)
    told = paragraph_corpus(train=150, valid=0, test=0).train
    rows = [(" ".join(pair.source), "") for story in told for pair in story.sentences]
    monkeypatch.setattr(tatoeba, "lines", lambda: rows)
    yield
    context.corpus.cache_clear()


@pytest.mark.parametrize("name", RUNS)
def test_a_tiny_run(name, tiny, tmp_path, monkeypatch):
    run, constants, check = RUNS[name]
    for module, constant, value in constants:
        monkeypatch.setattr(module, constant, value)
    context.corpus.cache_clear()
    found = run(tmp_path)
    check(json.loads(json.dumps(found, allow_nan=False)), tmp_path)
