"""The command for a machine with a GPU runs dry on this one, and loses nothing when a stage fails."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.gpu_stages import STAGES

ROOT = Path(__file__).parents[2]
NEEDED = "torch,triton,numpy,safetensors,tokenizers"


def with_only(packages, *command):
    """A process in which these packages alone can be imported; and those of the project."""
    environment = os.environ | {"ONLY": packages, "PYTHONPATH": str(ROOT / "tests" / "only")}
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=1200
    )


def test_every_stage_runs_dry_and_needs_few_packages(tmp_path):
    pytest.importorskip("triton", reason="the package triton is not installed (it is made for Linux)")
    ran = with_only(NEEDED, "-m", "benchmarks.gpu", "--dry", "--limit", "1200", "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    record = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert record["run"]["device"].startswith("none") and list(record["stages"]) == list(STAGES)
    for found in record["stages"].values():
        assert found.keys() == {"rows", "seconds"} and found["rows"]
    rows = [row for found in record["stages"].values() for row in found["rows"]]
    assert all(row["right"] for row in rows if "right" in row)
    contests = [row for row in rows if "same" in row]
    assert all(row["same"] == "yes" and row["seconds"] and not row["failed"] for row in contests)
    assert {row["what"]: row["tile"] for row in record["stages"]["tiles"]["rows"]} == {
        f"{kernel}, heads of 16, torch.float32, none": [16, 16, 4, stages]
        for kernel, stages in (("forward", 3), ("backward_q", 3), ("backward_kv", 3), ("read_part", 1))
    }
    skipped = {name for row in contests for name in row["skipped"]}
    assert {one.split()[0] for one in skipped} <= {"transformers", "torch", "compiled"}  # peers alone


def test_the_tests_on_a_gpu_need_few_packages(monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of packages that are left out
    collect = "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", "gpu", "tests"
    ran = with_only("torch,triton,pytest,hypothesis,numpy", *collect)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    files = Counter(line.partition("::")[0] for line in ran.stdout.splitlines() if "::" in line)
    marked = {path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark." + "gpu" in path.read_text("utf-8")}
    assert {ROOT / name for name in files} == marked and files.total() > 900


MADE_UP = """
import os, time
from benchmarks.gpu_stages import Stage

def rows(end):
    yield {"what": "before"}
    end()

ENDS = {"fails": lambda: 1 / 0, "hangs": lambda: time.sleep(600), "dies": lambda: os._exit(3), "fine": lambda: None}
STAGES = {name: Stage(lambda place, end=end: rows(end), 60) for name, end in ENDS.items()}
"""


def test_a_stage_that_fails_dies_or_hangs_is_stored_and_the_next_one_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "made_up_stages.py").write_text(MADE_UP, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    path, record = tmp_path / "gpu.json", {"run": {}, "stages": {}}
    gpu.measure(["fails", "dies", "fine"], "full", 600.0, path, record, stages="made_up_stages")
    monkeypatch.setattr(gpu, "START", 0.0)
    gpu.measure(["hangs"], "full", 12.0, path, record, stages="made_up_stages")
    gpu.measure(["late"], "full", 0.0, path, record, stages="made_up_stages")
    stored = json.loads(path.read_text(encoding="utf-8"))["stages"]
    assert [len(stored[name]["rows"]) for name in ("fails", "dies", "fine", "late")] == [1, 1, 1, 0]
    assert "ZeroDivisionError" in stored["fails"]["error"] and "Traceback" in stored["fails"]["error"]
    assert stored["dies"]["error"] == "the process ended with exit code 3"
    assert stored["fine"].keys() == {"rows", "seconds"}
    assert stored["hangs"]["stopped"].startswith("ended from outside")
    assert stored["late"]["stopped"].startswith("not begun")
    assert "fails: 1 rows" in capsys.readouterr().out
