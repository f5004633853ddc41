"""The benchmarks' harness measures what is known beforehand, and refuses unfair contests."""

import datetime
import json
import re
from types import SimpleNamespace

import pytest
import torch

from benchmarks import measure, run
from benchmarks.measure import alternate, check_same, fresh, memory_is_read_from, peak_memory, ratio
from benchmarks.summary import files

CPU = torch.device("cpu")
RESULTS = files()
MEBIBYTE = 2**20


@pytest.fixture(autouse=True)
def _same_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def clock(monkeypatch):
    """A clock on which time passes only where a test says so: no result depends on how busy the machine is."""
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: made.now))
    return made


CASE = """
from types import SimpleNamespace

import torch

from benchmarks import measure

clock = SimpleNamespace(now=0.0)
measure.time = SimpleNamespace(perf_counter=lambda: clock.now)  # time passes in a nap alone

def sleeper(seconds, size=1):
    def make():
        data = torch.ones(size)
        def work():
            clock.now += seconds
            return data.sum()
        return work
    return make

def missing():
    raise ImportError("nothing of the kind is installed")

def trials(*, quick, device):
    return [measure.Trial("sleep", {"n": 1}, torch.float32, ours={"short": sleeper(0.002)},
                  peers={"long": sleeper(0.004), "none": missing}, rounds=5,
                  report=lambda works, seconds: {"contenders": sorted(works)})]
"""


@pytest.fixture
def cases(tmp_path, clock):  # for its end: it takes the case's own clock away again
    folder = tmp_path / "cases"
    folder.mkdir()
    (folder / "naps.py").write_text(CASE, encoding="utf-8")
    return folder


# Measuring.


def test_a_known_ratio_is_found_and_the_order_turns(clock):
    order = []

    def nap(name, seconds):
        def work():
            order.append(name)
            clock.now += seconds

        return work

    works = {"a": nap("a", 0.08), "b": nap("b", 0.16)}
    seconds, repeats = alternate(works, rounds=6, device=CPU)
    assert repeats == 1 and {len(times) for times in seconds.values()} == {6}
    assert order == ["a", "b", "b", "a"] * 4
    assert ratio(seconds["a"], seconds["b"]) == {"median": 2, "p10": 2, "p90": 2}


def test_on_cuda_its_own_clock_counts_and_contenders_may_run_unequally_often(clock, monkeypatch):
    class Event:
        def __init__(self, enable_timing):
            self.synchronize = lambda: None

        def record(self):
            self.at = clock.now

        def elapsed_time(self, end):
            return 1000 * (end.at - self.at)

    nap = lambda seconds: vars(clock).update(now=clock.now + seconds)  # noqa: E731
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: nap(1.0))  # is no part of the work
    works = {"slow": lambda: nap(0.0625), "quick": lambda: nap(0.015625)}
    seconds, repeats = alternate(works, rounds=3, device=torch.device("cuda"), shortest=0.0625, apart=True)
    assert seconds == {"slow": [0.0625] * 3, "quick": [0.015625] * 3} and repeats == 4


def peaks_of_64_mebibytes():
    """64 MiB, in one block and in many, beside as much and more that was freed before."""
    before = torch.ones(128 * MEBIBYTE // 4)
    del before
    one = peak_memory(lambda: torch.ones(64 * MEBIBYTE // 4).sum(), CPU)
    before = [torch.ones(16 * 1024) for _ in range(1024)]
    last = torch.ones(16 * 1024)  # above the freed blocks, so that the C library keeps them
    del before
    many = peak_memory(lambda: [torch.ones(16 * 1024) for _ in range(1024)], CPU)
    return one["memory"], many["memory"], last.numel()


@pytest.mark.skipif(not memory_is_read_from().startswith("VmHWM"), reason="the kernel does not let the mark be lowered")
def test_a_known_allocation_is_found():
    one, many, _ = fresh(peaks_of_64_mebibytes)
    assert one == pytest.approx(64, rel=0.2)
    assert many == pytest.approx(64, rel=0.2)


@pytest.mark.parametrize("other", [torch.tensor([1.0, 2.1]), torch.tensor([1.0]), torch.tensor([1.0, float("nan")])])
def test_contenders_that_compute_something_else_are_refused(other):
    same = torch.tensor([1.0, 2.0])
    check_same({"ours": (same, same), "theirs": (same + 1e-6, same)}, 1e-4)
    with pytest.raises(ValueError, match="theirs: expected what ours computes, got something else"):
        check_same({"ours": (same, same), "theirs": (same, other)}, 1e-4)


# Running cases.


def test_a_result_says_what_was_measured_and_how(cases, tmp_path, capsys):
    assert run.main(["naps"], cases, tmp_path / "results") == 0
    said = capsys.readouterr().out
    assert re.search(r"short +against long +[\d.]+x \[[\d.]+, [\d.]+\] +\d+ against \d+ MiB", said)
    assert "without none: nothing of the kind is installed" in said
    check_result(tmp_path / "results" / "naps.json")
    (trial,) = json.loads((tmp_path / "results" / "naps.json").read_text())["trials"]
    assert trial["ratios"][0]["median"] == 2
    assert trial["skipped"] == {"none": "nothing of the kind is installed"}
    assert trial["report"] == {"contenders": ["long", "short"]}


def check_result(path):
    result = json.loads(path.read_text(encoding="utf-8"))
    about = result["run"]
    # The first results have a hash of the code in the place of the commit.
    assert set(about) - {"commit", "code"} == {
        *("command", "versions", "machine", "threads", "device", "memory_from", "date", "seconds")
    }
    assert about["command"] == f"make bench BENCH={path.stem} THREADS={about['threads']}"
    assert {"python", "torch", "d2l", "numpy"} <= set(about["versions"])
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", about["commit"]) if "commit" in about else len(about["code"]) == 64
    assert f"{about['threads']} threads" in about["machine"] and "CPU cores" in about["machine"]
    assert datetime.date.fromisoformat(about["date"]) >= datetime.date(2026, 1, 1)
    for trial in result["trials"]:
        assert {"name", "shapes", "dtype", "rounds", "runs_per_round", "skipped", "report"} <= set(trial)
        assert trial["ratios"] or trial["skipped"]
        for found in trial["ratios"]:
            assert 0 < found["p10"] <= found["median"] <= found["p90"]
            assert {found["ours"], found["peer"]} <= set(trial["seconds"]) & set(trial["memory_mib"])


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_stored_results_are_complete(path):
    check_result(path)
    assert (run.CASES / path.name).with_suffix(".py").is_file()


def test_an_unfair_contest_is_not_timed(cases):
    (cases / "naps.py").write_text(CASE.replace('"long": sleeper(0.004)', '"long": sleeper(0.004, size=2)'))
    with pytest.raises(ValueError, match="naps, sleep: long: expected what short computes"):
        run.main(["--quick", "naps"], cases)


def test_tiny_and_full_trials_have_the_same_names():
    # The memory of a trial is measured after its tiny form has run.
    for name in run.scripts(run.CASES):
        if name in ("bahdanau_training", "transformer_training"):
            continue  # their full forms write a corpus; their names do not depend on the size
        script = run.CASES / f"{name}.py"
        assert list(run.trials(script, quick=True)) == list(run.trials(script, quick=False))
