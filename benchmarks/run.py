"""Measure our mechanisms beside their peers: `python -m benchmarks.run dense`, or every case when none is named.

A case NAME.py in cases/ has `trials(*, quick, device)`, which returns a list of `measure.Trial`. The result is written
to results/NAME.json together with how it came about. `--quick` runs tiny sizes in this process, writes nothing, and
ends with an error where a ratio has fallen below its floor; `--floors` records these from several such runs.
"""

import argparse
import datetime
import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from attn_book.records import commit, load, machine, scripts, versions
from attn_core import default_device
from benchmarks import floors
from benchmarks.measure import (
    SHORTEST,
    Trial,
    Work,
    alternate,
    check_same,
    fresh,
    memory_is_read_from,
    peak_memory,
    ratio,
)

HERE = Path(__file__).resolve().parent
CASES = HERE / "cases"
VERSIONS_OF = ("torch", "triton", "transformers", "performer-pytorch", "linformer", "d2l", "numpy")
QUICK_ROUNDS, QUICK_SHORTEST = 9, 0.002
AGAIN = 2
"""How often a trial is measured again before a ratio counts as fallen: a busy moment passes, a slower call does not."""
FLOOR_RUNS = 6
RUN_IS_LIKE = ("device", "threads", "python")
"""What a run must share with the one that the floors come from: else they say nothing of it."""


def trials(script: Path, *, quick: bool) -> dict[str, Trial]:
    """The trials of a case, by name."""
    return {trial.name: trial for trial in load(script).trials(quick=quick, device=default_device())}


def time_trial(script: Path, name: str, quick: bool, threads: int) -> dict[str, Any]:
    """Check that the contenders of a trial do the same, then time them in turn: the trial's result without memory.

    Raises ValueError where they do not, or where a trial lacks contenders.
    """
    torch.set_num_threads(threads)
    trial = trials(script, quick=quick)[name]
    ours = {contender: make() for contender, make in trial.ours.items()}
    peers, skipped = _installed(trial.peers)
    works = ours | peers
    if not ours or not trial.peers or len(ours) + len(trial.peers) != len(trial.ours | trial.peers):
        raise ValueError(f"{name}: expected contenders of ours and peers, each with a name of its own")
    try:
        check_same({contender: work() for contender, work in works.items()}, trial.tolerance)
    except ValueError as error:
        raise ValueError(f"{script.stem}, {name}: {error}") from None
    rounds, shortest = (QUICK_ROUNDS, QUICK_SHORTEST) if quick else (trial.rounds, SHORTEST)
    seconds, repeats = alternate(works, rounds=rounds, device=default_device(), shortest=shortest)
    return {
        "name": name,
        "shapes": trial.shapes,
        "dtype": str(trial.dtype).removeprefix("torch."),
        "rounds": len(next(iter(seconds.values()))),
        "runs_per_round": repeats,
        "seconds": {contender: float(f"{statistics.median(s):.4g}") for contender, s in seconds.items()},
        "ratios": [{"ours": a, "peer": b, **ratio(seconds[a], seconds[b])} for a in ours for b in peers],
        "skipped": skipped,
        "report": trial.report(works, seconds),
    }


def _installed(peers: dict[str, Callable[[], Work]]) -> tuple[dict[str, Work], dict[str, str]]:
    works, skipped = {}, {}
    for contender, make in peers.items():
        try:
            works[contender] = make()
        except ImportError as error:
            skipped[contender] = str(error)
    return works, skipped


def memory_of(script: Path, name: str, contender: str, quick: bool, threads: int) -> dict[str, float]:
    """The MiB that one run of a contender takes, in a process where nothing larger has run."""
    torch.set_num_threads(threads)
    tiny, trial = (trials(script, quick=size)[name] for size in (True, quick))
    # The tiny run loads kernels and starts threads; what these take is no part of the work.
    (tiny.ours | tiny.peers)[contender]()()
    return peak_memory((trial.ours | trial.peers)[contender](), default_device())


def measure(script: Path, *, quick: bool, threads: int) -> list[dict[str, Any]]:
    """Every trial of a case; each timing, and each contender's memory, in a process of its own unless `quick`."""

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments) if quick else fresh(function, *arguments)

    found = []
    for name in trials(script, quick=quick):
        result = call(time_trial, script, name, quick, threads)
        result["memory_mib"] = {c: call(memory_of, script, name, c, quick, threads) for c in result["seconds"]}
        print("\n".join(lines(script.stem, result)), flush=True)
        found.append(result)
    return found


def low(script: Path, found: list[dict[str, Any]], limits: dict[str, Any], threads: int) -> dict[str, float]:
    """The ratios of a quick run that have fallen, also when their trials are measured again."""
    fell = floors.fallen(floors.pairs(script.stem, found), limits)
    for _ in range(AGAIN):
        wanted = [r["name"] for r in found if floors.pairs(script.stem, [r]).keys() & fell.keys()]
        again = [time_trial(script, name, True, threads) for name in wanted]
        now = floors.fallen(floors.pairs(script.stem, again), limits)
        fell = {name: max(ratio, now[name]) for name, ratio in fell.items() if name in now}
    return fell


def check_floors(script: Path, found: list[dict[str, Any]], stored: dict[str, Any], threads: int) -> list[str]:
    """What is wrong with a quick run of a case, in a line each: ratios that fell, or were not measured at all."""
    here = {name: value for name, value in floors_are_of(script, threads).items() if name in RUN_IS_LIKE}
    there = {name: stored["run"][name] for name in here}
    if here != there:
        print(f"{script.stem}: floors are not checked; they are for {there}, this is {here}.")
        return []
    limits = stored["floors"]
    fell = low(script, found, limits, threads)
    lines = [
        f"{name}: expected a ratio of {floors.ROOM * limits[name]:.2f} or more, got {found_ratio:.2f}"
        for name, found_ratio in fell.items()
    ]
    skipped = {floors.name(script.stem, r["name"], a, b) for r in found for a in r["seconds"] for b in r["skipped"]}
    gone = limits.keys() - floors.pairs(script.stem, found).keys() - skipped
    return lines + [f"{name}: expected a ratio, as it has a floor, got none" for name in sorted(gone)]


def floors_are_of(script: Path, threads: int) -> dict[str, Any]:
    """What is said of the run that a case's floors come from."""
    run = about(script, threads=threads, seconds=0.0)
    python = ".".join(platform.python_version_tuple()[:2])
    return {name: run[name] for name in ("versions", "machine", "threads", "device", "date")} | {"python": python}


def record_floors(scripts: Sequence[Path], path: Path, threads: int) -> None:
    """Write what several quick runs, each in a new process, have shown."""
    runs: dict[str, list[dict[str, float]]] = {script.stem: [] for script in scripts}
    for number in range(FLOOR_RUNS):
        for script in scripts:
            print(f"{script.stem}: run {number + 1} of {FLOOR_RUNS}", flush=True)
            runs[script.stem].append(floors.pairs(script.stem, fresh(measure_quickly, script, threads)))
    found = {
        script.stem: {"run": floors_are_of(script, threads), "floors": floors.record(runs[script.stem])}
        for script in scripts
    }
    floors.write(path, {case: one for case, one in found.items() if one["floors"]})


def measure_quickly(script: Path, threads: int) -> list[dict[str, Any]]:
    """The timings of a case at tiny sizes."""
    return [time_trial(script, name, True, threads) for name in trials(script, quick=True)]


def about(script: Path, *, threads: int, seconds: float) -> dict[str, Any]:
    """How a result came about."""
    return {
        "command": f"make bench BENCH={script.stem} THREADS={threads}",
        "versions": versions(VERSIONS_OF),
        "commit": commit(HERE),
        "machine": f"{machine()}, {processor()}",
        "threads": threads,
        "device": str(default_device()),
        "memory_from": memory_is_read_from(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "seconds": round(seconds, 1),
    }


def processor() -> str:
    """The processor's model in words."""
    information = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", information.read_text(), re.M) if information.exists() else None
    return found[1] if found else platform.processor() or "unknown processor"


def lines(case: str, result: dict[str, Any]) -> list[str]:
    """One trial in the printed table: how many times as fast as each peer, and the memory of both."""
    mebibytes = {contender: found["memory"] for contender, found in result["memory_mib"].items()}
    found = [f"{case}: {result['name']}"]
    for r in result["ratios"]:
        both = f"{mebibytes[r['ours']]:.0f} against {mebibytes[r['peer']]:.0f} MiB"
        found.append(
            f"  {r['ours']:<23} against {r['peer']:<35}{r['median']:6.2f}x [{r['p10']:.2f}, {r['p90']:.2f}]   {both}"
        )
    return found + [f"  without {name}: {why}" for name, why in result["skipped"].items()]


def main(
    arguments: Sequence[str],
    cases: Path = CASES,
    results: Path = HERE / "results",
    floors_file: Path = HERE / "floors.json",
) -> int:
    """Run the named cases, or all."""
    names = scripts(cases)
    there = ", ".join(names)
    parser = argparse.ArgumentParser(description="Measure our mechanisms beside their peers; write results/NAME.json.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {there}")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch, for all contenders")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--quick", action="store_true", help="tiny sizes, in one process, nothing written; check floors")
    form.add_argument("--floors", action="store_true", help="several quick runs, their lowest ratios into floors.json")
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.names) - set(names))
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)} (there are: {there})")
    if chosen.threads < 1:
        parser.error(f"threads: expected 1 or more, got {chosen.threads}")
    torch.set_num_threads(chosen.threads)  # for what is said of the machine; each process sets its own
    paths = [cases / f"{name}.py" for name in chosen.names or names]
    if chosen.floors:
        record_floors(paths, floors_file, chosen.threads)
        return 0
    print("How many times as fast as a peer ours is: median over pairs [10th, 90th percentile]; peak memory of both.")
    stored = floors.read(floors_file)
    wrong: list[str] = []
    for script in paths:
        started = time.perf_counter()
        found = measure(script, quick=chosen.quick, threads=chosen.threads)
        if chosen.quick:
            wrong += check_floors(script, found, stored[script.stem], chosen.threads) if script.stem in stored else []
        elif found:  # without its device, a case finds nothing
            run = about(script, threads=chosen.threads, seconds=time.perf_counter() - started)
            results.mkdir(exist_ok=True)
            text = json.dumps({"run": run, "trials": found}, indent=1, ensure_ascii=False, allow_nan=False)
            (results / f"{script.stem}.json").write_text(text + "\n", encoding="utf-8")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
