"""README's table of the benchmarks is the one that the recorded results give."""

import json

import pytest

from benchmarks import summary
from benchmarks.gpu_contest import Place
from benchmarks.gpu_trials import TRIALS
from benchmarks.summary import NO_GPU, ON_A_GPU, README, SHOWN, Ratio, like_with_like, ratios, table, with_table


def one(**changed):
    usual = {"case": "a", "trial": "t", "ours": "o", "peer": "p", "median": 2, "p10": 1.5, "p90": 3}
    return Ratio(**{**usual, "ours_mib": 1, "peer_mib": 2, **changed})


def test_readme_shows_what_was_measured():
    readme = README.read_text(encoding="utf-8")
    assert with_table(readme, ratios(), summary.gpu_record()) == readme, "python -m benchmarks.summary"


def test_what_was_measured_on_a_gpu_is_shown_and_otherwise_that_none_was(tmp_path):
    readme = README.read_text(encoding="utf-8")
    assert summary.gpu_record(tmp_path) is None and NO_GPU in with_table(readme, ratios(), None)
    (what, (stage, row, ours, peer)), *others = ON_A_GPU.items()
    ratio = {"ours": ours, "peer": peer, "median": 1.0625, "p10": 1.0, "p90": 12.0}
    stages = {stage: {"rows": [{"what": row, "ratios": [ratio]}]}, "machine": {"rows": [{"what": "device"}]}}
    run = {"size": "full", "device": "MADE-UP GPU", "versions": {"torch": "9.8", "triton": "7.6"}, "date": "2031-02-03"}
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"run": run, "stages": stages}), encoding="utf-8")
    shown = with_table(readme, ratios(), summary.gpu_record(tmp_path))
    assert f"| {what} | `{ours}` | {peer} | 1.06 [1.00, 12] |" in shown and NO_GPU not in shown
    assert "one MADE-UP GPU in bfloat16, with torch 9.8, Triton 7.6, on 2031-02-03" in shown
    assert not any(each in shown for each, _ in others) and ratios(tmp_path) == []
    path.write_text(json.dumps({"run": run | {"size": "dry"}, "stages": {}}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"gpu\.json: expected a run on a GPU, got a dry one"):
        summary.gpu_record(tmp_path)


def test_what_is_shown_of_a_gpu_are_rows_of_its_stages():
    """Trials make nothing before they are measured, so their names are known without a GPU."""
    for stage, row, ours, peer in ON_A_GPU.values():
        trial = next(trial for trial in TRIALS[stage](Place("full")) if trial.name == row)
        assert ours in trial.ours and peer in trial.peers


def test_every_ratio_of_every_file_is_read():
    trials = [trial for path in summary.files() for trial in json.loads(path.read_text(encoding="utf-8"))["trials"]]
    assert len(ratios()) == sum(len(trial["ratios"]) for trial in trials) > 100


def test_what_compares_unlike_things_is_not_shown():
    unlike = one(case="crossover"), one(case="bahdanau_training", trial="all sentences, none cut")
    alike = one(case="bahdanau_training", trial="same batches, cut"), one(case="performer", trial="512 tokens, full")
    unlike += (one(trial="decoding and its products, float32"),)
    assert not any(map(like_with_like, (*unlike, one(case="performer", trial="512 tokens, causal"))))
    assert all(map(like_with_like, alike))
    shown = {(r.case, r.trial, r.ours, r.peer) for r in filter(like_with_like, ratios())}
    assert set(SHOWN.values()) <= shown


def test_a_line_shows_the_ratio_and_its_spread(monkeypatch):
    monkeypatch.setattr(summary, "SHOWN", {"what": ("a", "t", "o", "p")})
    found = [one(median=9), one(median=0.504, p10=0.4, p90=12.4), one(peer="q")]
    assert table(found).splitlines()[2:] == ["| what | `o` | p | 0.50 [0.40, 12] |"]
    with pytest.raises(ValueError, match=r"SHOWN: expected a recorded comparison, got \('a', 't', 'o', 'p'\)"):
        table([one(peer="q")])
