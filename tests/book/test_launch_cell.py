"""The cell that every notebook begins with: nothing at home; on Colab the book is fetched and its package installed."""

import os
import subprocess
import sys
import types

import pytest

from tests.book.built_site import repository
from tests.book.notebooks import launch_cell


@pytest.fixture
def run(monkeypatch):
    """Runs the cell with `subprocess.run`, `os.path.isdir` and `os.chdir` replaced; what it asked for."""

    def go(*, colab, cloned=False, fails=False):
        asked, moves = [], []

        def fake_run(command, **options):
            asked.append(command)
            assert options == {"check": True}
            if fails:
                raise subprocess.CalledProcessError(1, command)

        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "google.colab", raising=False)
            if colab:
                patch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
            patch.setattr(subprocess, "run", fake_run)
            patch.setattr(os, "chdir", moves.append)
            patch.setattr(os.path, "isdir", lambda path: cloned)
            exec(compile(launch_cell(), "launch cell", "exec"), {})
        return asked, moves

    return go


def test_does_nothing_at_home(run):
    assert run(colab=False) == ([], [])


def test_fetches_and_installs_on_colab(run):
    asked, moves = run(colab=True)
    clone, install = asked
    assert clone[:2] == ["git", "clone"] and repository() in clone
    book = clone[-1]
    assert install[:4] == [sys.executable, "-m", "pip", "install"] and install[-1] == book
    assert "--upgrade" not in install and "-r" not in install  # Colab keeps its own torch and numpy
    assert moves == [f"{book}/chapters"]


def test_does_not_fetch_twice(run):
    asked, moves = run(colab=True, cloned=True)
    assert [command[2] for command in asked] == ["pip"] and len(moves) == 1


def test_stops_where_the_download_fails(run):
    with pytest.raises(subprocess.CalledProcessError):
        run(colab=True, fails=True)
