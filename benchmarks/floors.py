"""How low a ratio at tiny sizes may fall: recorded by `make bench-floors`, checked by `make bench-quick`.

At tiny sizes the work is the calls themselves, so these ratios say little of a mechanism's speed. But they fall at once
when a call grows slower: a check in a loop, a copy, a kernel that is no longer taken.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LEAST_NOISE, MOST_NOISE = 0.25, 0.5
"""How far below the lowest recorded ratio a busy or another machine may go, however well the recorded runs agree, and
how far at most, however little."""


def pairs(case: str, trials: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The median ratio of each pair, by its name."""
    return {name(case, t["name"], r["ours"], r["peer"]): r["median"] for t in trials for r in t["ratios"]}


def name(case: str, trial: str, ours: str, peer: str) -> str:
    """What a pair of contenders is called."""
    return f"{case}, {trial}: {ours} / {peer}"


def record(runs: Iterable[dict[str, float]]) -> dict[str, dict[str, float]]:
    """From several runs of `pairs`: the lowest ratio of each, and the noise: their spread over their median."""
    found: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for pair, ratio in run.items():
            found[pair].append(ratio)
    return {
        pair: {"lowest": min(r), "noise": round((max(r) - min(r)) / statistics.median(r), 3)}
        for pair, r in sorted(found.items())
    }


def limit(floor: dict[str, float]) -> float:
    """Below this, a ratio has fallen by more than the noise: at least a quarter, never more than half."""
    return floor["lowest"] * (1 - min(MOST_NOISE, max(floor["noise"], LEAST_NOISE)))


def fallen(found: dict[str, float], floors: dict[str, dict[str, float]]) -> dict[str, float]:
    """Those ratios that lie below their limits; a pair that has no floor is never among them."""
    return {pair: ratio for pair, ratio in found.items() if pair in floors and ratio < limit(floors[pair])}


def read(path: Path) -> dict[str, dict[str, Any]]:
    """What `write` wrote: by case, its `floors`, and the `run` that they come from. Without a file, nothing.

    Raises:
        ValueError: it is no such file.
    """
    if not path.exists():
        return {}
    try:
        found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        for case in found.values():
            case["run"]["device"], [limit(floor) for floor in case["floors"].values()]
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"floors: expected a file that `make bench-floors` wrote, got {path.name}: {error}") from None


def write(path: Path, cases: dict[str, dict[str, Any]]) -> None:
    """Put the floors of some cases into a file; those of other cases stay."""
    text = json.dumps(dict(sorted((read(path) | cases).items())), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
