"""README's table of the benchmarks is the one that the recorded results give."""

import json

import pytest

from benchmarks.summary import BEGIN, END, README, Ratio, pairs, ratios, table, times, with_table


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


def test_a_ratio_is_level_where_its_spread_includes_one():
    assert [one(p10=p10, p90=p90).verdict for p10, p90 in ((1.1, 2), (0.9, 1.1), (0.5, 0.9), (1, 2))] == [
        *("faster", "level", "slower", "level"),
    ]


def test_a_line_counts_and_spans_its_trials():
    group = [one(median=0.5, p10=0.4, p90=0.6), one(median=12.4, p10=11, p90=13), one(peer="q", median=1.0, p90=1.2)]
    lines = table(group).splitlines()
    assert lines[2:] == ["| a | o | p | 0.50 to 12 | 1 | 0 | 1 |", "| a | o | q | 1.00 | 1 | 0 | 0 |"]
    assert list(pairs(group)) == [("a", "o", "p"), ("a", "o", "q")]


def test_numbers_have_at_most_three_figures():
    assert [times(x) for x in (0.9876, 1.004, 2.345, 12.34, 123.4)] == ["0.99", "1.00", "2.3", "12", "123"]


def test_what_stands_around_the_table_stays():
    assert with_table(f"a\n{BEGIN}old\n{END}b\n", []).startswith(f"a\n{BEGIN}\n| case")
    assert with_table(f"a\n{BEGIN}old\n{END}b\n", []).endswith(f"\n{END}b\n")
    with pytest.raises(ValueError, match=r"README\.md: expected the lines"):
        with_table("a", [])
