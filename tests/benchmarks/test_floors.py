"""A ratio that falls to less than half is found, one that was only unlucky is not."""

import pytest

from benchmarks import floors, measure, run
from tests.benchmarks.test_harness import CASE

NAME = "naps, sleep: short / long"


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """A run of the case with these seconds, on a clock of its own: its exit status."""
    monkeypatch.setattr(measure, "time", measure.time)  # the case puts its clock there
    (tmp_path / "cases").mkdir()

    def go(*arguments, ours=0.002):
        (tmp_path / "cases" / "naps.py").write_text(CASE.replace("0.002", str(ours)))
        return run.main([*arguments, "naps"], tmp_path / "cases", tmp_path / "results", tmp_path / "floors.json")

    return go


def test_recorded_then_checked(quick, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "FLOOR_RUNS", 2)
    assert quick("--floors") == 0
    stored = floors.read(tmp_path / "floors.json")["naps"]
    assert stored["floors"] == {NAME: 2.0} and stored["run"]["threads"] == 1
    assert quick("--quick") == 0
    capsys.readouterr()
    assert quick("--quick", ours=0.03) == 1  # Python tells files of one second apart by their size alone
    assert capsys.readouterr().err == f"{NAME}: expected a ratio of 1.00 or more, got 0.13\n"
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("again", "fell"), [([1.9], {}), ([0.4, 1.1], {}), ([0.4, 0.3], {NAME: 0.4}), ([0.2, 0.2], {NAME: 0.3})]
)
def test_what_was_slow_for_a_moment_has_not_fallen(tmp_path, monkeypatch, again, fell):
    trial = {"name": "sleep", "ratios": [{"ours": "short", "peer": "long", "median": 0.3}]}
    later = iter(again)

    def time_trial(script, name, quick, threads):
        return {"name": name, "ratios": [{"ours": "short", "peer": "long", "median": next(later)}]}

    monkeypatch.setattr(run, "time_trial", time_trial)
    assert run.low(tmp_path / "naps.py", [trial], {NAME: 2.0}, 1) == fell and list(later) == []


def stored(path, floors_of_naps, **run_of_them):
    floors.write(
        path, {"naps": {"run": run.floors_are_of(run.CASES / "dense.py", 1) | run_of_them, "floors": floors_of_naps}}
    )


@pytest.mark.parametrize("other", [{"device": "cuda"}, {"threads": 2}, {"python": "3.9"}])
def test_floors_of_another_kind_of_run_are_not_held_against_it(quick, tmp_path, capsys, other):
    stored(tmp_path / "floors.json", {NAME: 50.0})
    assert quick("--quick") == 1
    stored(tmp_path / "floors.json", {NAME: 50.0}, **other)
    assert quick("--quick") == 0 and "naps: floors are not checked" in capsys.readouterr().out


def test_a_pair_that_is_no_longer_measured_is_missed(quick, tmp_path, capsys):
    stored(tmp_path / "floors.json", {"naps, sleep: short / another": 1.0})
    assert quick("--quick") == 1
    assert capsys.readouterr().err == "naps, sleep: short / another: expected a ratio, as it has a floor, got none\n"


def test_every_case_that_can_be_measured_here_has_floors():
    """All but those whose every peer is in no environment of the book."""
    found = floors.read(run.HERE / "floors.json")
    elsewhere = {"flash_gpu", "linformer", "lsh", "performer", "smollm2", "vision_transformer"}
    assert set(found) == set(run.scripts(run.CASES)) - elsewhere
    for case, one in found.items():
        assert one["run"]["device"] == "cpu" and one["run"]["threads"] == 1
        assert one["floors"] and all(name.startswith(f"{case}, ") for name in one["floors"])
        assert not [name for name in one["floors"] if "transformers" in name or "Hugging" in name]
