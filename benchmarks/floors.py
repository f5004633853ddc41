"""How low a ratio at tiny sizes may fall: recorded by `make bench-floors`, checked by `make bench-quick`.

At tiny sizes the work is the calls themselves, so these ratios say little of a mechanism's speed. But they fall at once
when a call grows slower: a check in a loop, a copy, a kernel that is no longer taken.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOM = 0.5
"""A ratio has fallen below this share of its floor. Another machine's processor alone moves one by a quarter."""


def pairs(case: str, trials: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The median ratio of each pair, by its name."""
    return {name(case, t["name"], r["ours"], r["peer"]): r["median"] for t in trials for r in t["ratios"]}


def name(case: str, trial: str, ours: str, peer: str) -> str:
    """What a pair of contenders is called."""
    return f"{case}, {trial}: {ours} / {peer}"


def record(runs: Iterable[dict[str, float]]) -> dict[str, float]:
    """From several runs of `pairs`: the lowest ratio of each."""
    found: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for pair, ratio in run.items():
            found[pair].append(ratio)
    return {pair: min(ratios) for pair, ratios in sorted(found.items())}


def fallen(found: dict[str, float], floors: dict[str, float]) -> dict[str, float]:
    """Those ratios that lie below half of their floors; a pair that has no floor is never among them."""
    return {pair: ratio for pair, ratio in found.items() if pair in floors and ratio < ROOM * floors[pair]}


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
            case["run"]["device"], [ROOM * floor for floor in case["floors"].values()]
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"floors: expected a file that `make bench-floors` wrote, got {path.name}: {error}") from None


def write(path: Path, cases: dict[str, dict[str, Any]]) -> None:
    """Put the floors of some cases into a file; those of other cases stay."""
    text = json.dumps(dict(sorted((read(path) | cases).items())), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
