"""Run recorded experiments: `python recorded/run.py landing`, or every script of this folder when none is named.

A script NAME.py has `SEEDS`, a tuple of integers, and `run(folder)`, which returns what is to be remembered as a
dictionary that JSON can hold; it may write weights into `folder` as NAME.safetensors. The result is written to
results/NAME.json together with how it came about.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VERSIONS_OF = ("torch", "numpy", "sacrebleu")


def names(folder: Path = HERE) -> list[str]:
    """The experiments of a folder, in alphabetical order."""
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "run")


def code_hash(script: Path, root: Path = ROOT) -> str:
    """SHA-256 of the script and of all Python that it may import, so that a record tells which code made it."""
    digest = hashlib.sha256(script.read_bytes())
    for folder in ("attn_core", "benchmarks", "exercises", "recorded"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def machine() -> str:
    """The machine in words: what a time or a memory measured on it depends on, and nothing that names it."""
    import torch

    words = [platform.system(), platform.machine(), f"{os.cpu_count()} CPU cores", f"{torch.get_num_threads()} threads"]
    if torch.cuda.is_available():
        words.append(torch.cuda.get_device_name())
    return ", ".join(words)


def load(script: Path) -> ModuleType:
    """Import an experiment by its path."""
    spec = importlib.util.spec_from_file_location(f"recorded_{script.stem}", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        "versions": {"python": platform.python_version()}
        | {package: importlib.metadata.version(package) for package in VERSIONS_OF},
        "code": code_hash(script),
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
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names()) or 'none yet'}")
    wanted = parser.parse_args(arguments).names or names()
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        parser.error(f"no such experiment: {', '.join(unknown)} (there are: {', '.join(names()) or 'none'})")
    sys.path.insert(0, str(ROOT))
    for name in wanted:
        print(f"{name} ...", flush=True)
        print(f"wrote {record(name).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
