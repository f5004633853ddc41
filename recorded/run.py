"""Run recorded experiments: `python recorded/run.py context`, or every script of this folder when none is named.

A script NAME.py has `SEEDS`, a tuple of integers, and `run(folder)`, which returns what is to be remembered as a
dictionary that JSON can hold; it may write weights into `folder` as NAME.safetensors. The result is written to
results/NAME.json together with how it came about.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attn_book.records import commit, load, machine, scripts, versions

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VERSIONS_OF = ("torch", "numpy", "sacrebleu")


def record(name: str, folder: Path = HERE) -> Path:
    """Run one experiment and write results/NAME.json; the path of what was written.

    Raises ValueError where the experiment lacks SEEDS or returns a key named "run".
    """
    script = folder / f"{name}.py"
    module = load(script)
    seeds = getattr(module, "SEEDS", None)
    if not isinstance(seeds, tuple) or not all(type(seed) is int for seed in seeds):
        raise ValueError(f"recorded/{name}.py must have SEEDS, a tuple of integers; it has {seeds!r}")
    results = folder / "results"
    results.mkdir(exist_ok=True)
    started = time.perf_counter()
    found: dict[str, Any] = module.run(results)
    if "run" in found:
        raise ValueError(f'recorded/{name}.py must not return the key "run", which holds how it was run')
    about = {
        "command": f"make record RUNS={name}",
        "seeds": list(seeds),
        "versions": versions(VERSIONS_OF),
        "commit": commit(ROOT),
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "seconds": round(time.perf_counter() - started, 1),
    }
    target = results / f"{name}.json"
    text = json.dumps({"run": about, **found}, indent=1, ensure_ascii=False, allow_nan=False)
    target.write_text(text + "\n", encoding="utf-8")
    return target


def main(arguments: Sequence[str]) -> int:
    """Run the named experiments, or all."""
    parser = argparse.ArgumentParser(description="Run recorded experiments and write results/NAME.json.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(scripts(HERE)) or 'none yet'}")
    wanted = parser.parse_args(arguments).names or scripts(HERE)
    unknown = sorted(set(wanted) - set(scripts(HERE)))
    if unknown:
        parser.error(f"no such experiment: {', '.join(unknown)} (there are: {', '.join(scripts(HERE)) or 'none'})")
    sys.path.insert(0, str(ROOT))  # a script may import another, or the benchmarks
    for name in wanted:
        print(f"{name} ...", flush=True)
        print(f"wrote {record(name).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
