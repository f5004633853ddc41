"""Recorded runs: what is stored says how it came about, and the runner refuses what it cannot record."""

import datetime
import importlib.util
import json
import re
import subprocess

import pytest

from attn_book import records
from tests.book.built_site import ROOT

RECORDED = ROOT / "recorded"
RESULTS = sorted((RECORDED / "results").glob("*.json"))


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("recorded_run", RECORDED / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_record_says_how_it_came_about(path):
    record = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    about = record["run"]
    assert {"command", "seeds", "versions", "machine", "date"} <= set(about)
    command, _, name = about["command"].partition(" RUNS=")
    assert command == "make record" and name == path.stem
    assert (RECORDED / f"{name}.py").is_file()
    assert about["seeds"] and all(type(seed) is int for seed in about["seeds"])
    assert {"python", "torch"} <= set(about["versions"])
    # The first records have a hash of the code in the place of the commit.
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", about["commit"]) if "commit" in about else len(about["code"]) == 64
    assert "CPU cores" in about["machine"]
    assert datetime.date.fromisoformat(about["date"]) >= datetime.date(2026, 1, 1)
    assert len(record) > 1


def test_nothing_is_stored_without_a_script():
    weights = {p.stem for p in (RECORDED / "results").iterdir()}
    assert weights <= {p.stem for p in RECORDED.glob("*.py")}


def write(folder, body):
    (folder / "trial.py").write_text(body, encoding="utf-8")


def test_a_run_is_recorded(runner, tmp_path):
    write(tmp_path, "SEEDS = (3, 4)\ndef run(folder):\n    return {'title': 'café', 'sum': sum(SEEDS)}\n")
    target = runner.record("trial", tmp_path)
    record = json.loads(target.read_text(encoding="utf-8"))
    assert target == tmp_path / "results" / "trial.json"
    assert (record["title"], record["sum"]) == ("café", 7)
    assert record["run"]["seeds"] == [3, 4] and record["run"]["command"] == "make record RUNS=trial"
    assert record["run"]["commit"] == records.commit(runner.ROOT)


def test_the_commit_tells_whether_files_have_changed(tmp_path):
    assert records.commit(tmp_path) == "not in a git repository"
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(tmp_path)]
    (tmp_path / "a.py").write_text("x = 1\n", encoding="utf-8")
    for words in (["init", "--quiet"], ["add", "a.py"], ["commit", "--quiet", "-m", "One"]):
        subprocess.run([*git, *words], check=True)
    clean = records.commit(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{40}", clean)
    (tmp_path / "a.py").write_text("x = 2\n", encoding="utf-8")
    assert records.commit(tmp_path) == f"{clean}-dirty"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def run(folder):\n    return {}\n", r"trial\.py must have SEEDS, a tuple of integers; it has None"),
        ("SEEDS = [0]\ndef run(folder):\n    return {}\n", r"must have SEEDS, a tuple of integers; it has \[0\]"),
        ("SEEDS = ('a',)\ndef run(folder):\n    return {}\n", r"must have SEEDS, a tuple of integers"),
        ("SEEDS = (0,)\ndef run(folder):\n    return {'run': 1}\n", r'must not return the key "run"'),
        ("SEEDS = (0,)\ndef run(folder):\n    return {'bleu': float('nan')}\n", r"JSON|Out of range"),
    ],
)
def test_what_cannot_be_recorded_is_refused(runner, tmp_path, body, message):
    write(tmp_path, body)
    with pytest.raises(ValueError, match=message):
        runner.record("trial", tmp_path)
    assert not (tmp_path / "results" / "trial.json").exists()
