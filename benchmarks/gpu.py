"""Everything that is measured on a GPU, in one command: ``python -m benchmarks.gpu --out FOLDER``.

The work is in stages (``gpu_stages.py``). Each has a share of the time; whatever it found is in FOLDER/gpu.json as soon
as it was found, and when a stage fails, its traceback is stored and the next one begins, in a new process, because
after some errors a process cannot use its GPU any more. ``--smoke`` runs the first stages alone: does everything work
at all? ``--dry`` runs all of them at tiny sizes on a CPU, with Triton's interpreter. Without ``--out`` the folder is
the one that the environment names in OUT, or _build/gpu.

It needs torch, triton, numpy, safetensors and tokenizers; transformers is compared with where it is installed.
"""

import argparse
import datetime
import functools
import importlib
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from attn_book.records import commit, machine, versions
from benchmarks.gpu_contest import Place

STAGES = "benchmarks.gpu_stages"
HERE = Path(__file__).resolve().parent
VERSIONS_OF = ("torch", "triton", "transformers", "numpy")
LIMIT = {"full": 470.0, "smoke": 110.0, "dry": 55.0}
"""Seconds for all stages together, unless other limits are given."""
START = 8.0
"""Seconds that a new process needs before it measures anything."""
GRACE = 20.0
"""Seconds that a stage may take beyond its share until its process is ended: it stops by itself after a row."""


def run_stages(connection: Connection, size: str, stages: str) -> None:
    """What a process does: the stages that it is told, one after the other; it says ``(kind, content)`` of each."""
    table = importlib.import_module(stages).STAGES
    place = Place(size)
    if place.dry:
        torch.set_num_threads(1)
    while (name := connection.recv()) is not None:
        share = connection.recv()
        end = time.monotonic() + share
        try:
            for row in table[name].rows(place):
                json.dumps(row, allow_nan=False)  # what cannot be stored is an error of this stage
                connection.send(("row", row))
                if time.monotonic() > end:
                    connection.send(("stopped", f"after its share of {share:.0f} s"))
                    break
            connection.send(("done", None))
        except Exception:
            connection.send(("error", traceback.format_exc()))


class Process:
    """A process for stages, made when it is needed."""

    def __init__(self, size: str, stages: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self.process = context.Process(
            target=run_stages, args=(there, size, stages)
        )  # it may start others, which compile
        self.process.start()
        there.close()

    def run(self, name: str, share: float, left: float, found: dict[str, Any], said: Callable[[], None]) -> bool:
        """Run a stage; what it finds goes into ``found``, and then ``said`` is called. Whether it can run another."""
        given = min(share + GRACE, left)
        end = time.monotonic() + given
        try:
            self.connection.send(name)
            self.connection.send(share)
            while self.connection.poll(max(0.0, end - time.monotonic())):
                kind, content = self.connection.recv()
                if kind == "row":
                    found["rows"].append(content)
                elif kind != "done":
                    found[kind] = content
                said()
                if kind in ("done", "error"):
                    return kind == "done"
        except (EOFError, OSError):
            self.process.join(5)
            found["error"] = f"the process ended with exit code {self.process.exitcode}"
            return False
        found["stopped"] = f"ended from outside after {given:.0f} s"
        return False

    def end(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.join()


def about(arguments: Sequence[str], size: str) -> dict[str, Any]:
    """How the record came about."""
    try:
        code = commit(HERE)
    except OSError:  # no git
        code = "unknown"
    return {
        "command": " ".join(["python -m benchmarks.gpu", *arguments]),
        "size": size,
        "versions": versions(VERSIONS_OF),
        "commit": code,
        "machine": machine(),
        "device": torch.cuda.get_device_name() if size != "dry" else "none: a dry run on the CPU",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }


def store(path: Path, record: dict[str, Any]) -> None:
    """Write the record so that a whole one lies there at any moment."""
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def measure(
    names: Sequence[str], size: str, limit: float, path: Path, record: dict[str, Any], stages: str = STAGES
) -> None:
    """Run these stages within a limit of seconds, and store after each row what there is."""
    table = importlib.import_module(stages).STAGES  # this imports no kernels
    began = time.monotonic()
    process: Process | None = None
    try:
        for name in names:
            left = limit - (time.monotonic() - began) - (0 if process else START)
            found: dict[str, Any] = {"rows": []}
            record["stages"][name] = found
            if left <= 0:
                found["stopped"] = f"not begun: the limit of {limit:.0f} s was reached"
            else:
                process = process or Process(size, stages)
                store_so_far = functools.partial(store_at, path, record, found, began, time.monotonic())
                share = left if size == "dry" else min(left, table[name].share)
                if not process.run(name, share, left, found, store_so_far):
                    process.end()
                    process = None
            store(path, record)
            print(line(name, found), flush=True)
    finally:
        if process is not None:
            process.end()


def store_at(path: Path, record: dict[str, Any], found: dict[str, Any], began: float, started: float) -> None:
    """Store the record with the seconds since all, and since this stage, began."""
    now = time.monotonic()
    found["seconds"], record["run"]["seconds"] = round(now - started, 1), round(now - began, 1)
    store(path, record)


def line(name: str, found: dict[str, Any]) -> str:
    """A stage in a line: how far it came, and what failed."""
    failed = [
        f"{row['what']}: {why.strip().splitlines()[-1]}"
        for row in found["rows"]
        for why in row.get("failed", {}).values()
    ]
    wrong = [row["what"] for row in found["rows"] if row.get("right") is False]
    words = f"{name}: {len(found['rows'])} rows in {found.get('seconds', 0)} s"
    words += f"; stopped {found['stopped']}" if "stopped" in found else ""
    words += "; FAILED: " + found["error"].strip().splitlines()[-1] if "error" in found else ""
    return "\n".join([words, *(f"  WRONG {one}" for one in wrong), *(f"  failed {one}" for one in failed)])


def main(arguments: Sequence[str]) -> int:
    """Run the stages; 1 if one failed, or a kernel was wrong."""
    stages = importlib.import_module(STAGES)
    there = ", ".join(stages.STAGES)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Measure on a GPU, in stages.")
    parser.add_argument("--smoke", action="store_true", help="the first stages alone: does everything work at all?")
    parser.add_argument("--dry", action="store_true", help="every stage at tiny sizes, on a CPU")
    parser.add_argument("--stages", nargs="+", metavar="NAME", help=f"these alone, of {there}")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="when to stop")
    out = Path(os.environ.get("OUT", "_build/gpu"))
    parser.add_argument(
        "--out", type=Path, default=out, metavar="FOLDER", help=f"where gpu.json goes, by default {out}"
    )
    chosen = parser.parse_args(arguments)
    names = chosen.stages or list(stages.SMOKE if chosen.smoke else stages.STAGES)
    if unknown := sorted(set(names) - set(stages.STAGES)):
        parser.error(f"no such stage: {', '.join(unknown)} (there are: {there})")
    size = "dry" if chosen.dry else "smoke" if chosen.smoke else "full"
    if chosen.dry:
        os.environ["TRITON_INTERPRET"] = "1"  # for the processes to come
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here; --dry needs none")
    path = chosen.out / "gpu.json"
    chosen.out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"run": about(arguments, size), "stages": {}}
    if path.exists():  # stages that are not run again stay
        earlier = json.loads(path.read_text(encoding="utf-8"))
        if earlier["run"]["device"] != record["run"]["device"]:
            parser.error(f"{path}: expected a record of {record['run']['device']}, got {earlier['run']['device']}")
        record["stages"] = earlier["stages"]
    measure(names, size, chosen.limit or LIMIT[size], path, record)
    ran = [record["stages"][name] for name in names]
    wrong = any(row.get("right") is False or row.get("failed") for found in ran for row in found["rows"])
    return 1 if wrong or any("error" in found for found in ran) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
