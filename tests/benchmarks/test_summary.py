"""README's table of the benchmarks is the one that the recorded results give."""

import json

import pytest

from benchmarks import summary
from benchmarks.summary import README, SHOWN, Ratio, like_with_like, ratios, table, with_table


def one(**changed):
    usual = {"case": "a", "trial": "t", "ours": "o", "peer": "p", "median": 2, "p10": 1.5, "p90": 3}
    return Ratio(**{**usual, "ours_mib": 1, "peer_mib": 2, **changed})


def test_readme_shows_what_was_measured():
    readme = README.read_text(encoding="utf-8")
    assert with_table(readme, ratios()) == readme, "python -m benchmarks.summary"


def test_every_ratio_of_every_file_is_read():
    folder = README.parent / "benchmarks" / "results"
    trials = [
        trial for path in folder.glob("*.json") for trial in json.loads(path.read_text(encoding="utf-8"))["trials"]
    ]
    assert len(ratios()) == sum(len(trial["ratios"]) for trial in trials) > 100


def test_what_compares_unlike_things_is_not_shown():
    unlike = one(case="crossover"), one(case="bahdanau_training", trial="all sentences, none cut")
    alike = one(case="bahdanau_training", trial="same batches, cut"), one(case="performer", trial="512 tokens, full")
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
