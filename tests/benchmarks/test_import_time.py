import pytest

from benchmarks import import_time


@pytest.mark.parametrize(("seconds", "status"), [(0.03, 0), (0.31, 1)])
def test_an_import_beyond_the_limit_is_an_error(monkeypatch, capsys, seconds, status):
    monkeypatch.setattr(import_time, "seconds", lambda: seconds)
    assert import_time.main() == status and f"{seconds:.3f} s" in capsys.readouterr().out
