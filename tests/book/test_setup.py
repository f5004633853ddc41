"""website/setup.sh: one clear sentence where something is missing, and nothing done twice."""

import shutil
import subprocess
import sys

import pytest

from tests.book.built_site import ROOT

TOOLS = ("sh", "dirname", "cat", "cksum", "grep", "tail", "rm", "env", "mkdir", "sed", "chmod")
# Behaves as a Python of some version, and makes an environment whose pip only logs what it is asked.
PYTHON = f"""#!/bin/sh
if [ "$1" = -c ]; then exec '{sys.executable}' -c 'import sys; sys.version_info = VERSION; exec(sys.argv[1])' "$2"; fi
echo "$@" >>asked
if [ "$2" = venv ]; then
    mkdir -p "$3/bin"
    printf '#!/bin/sh\necho "$@" >>asked\n' >"$3/bin/python"
    chmod +x "$3/bin/python"
fi
"""


@pytest.fixture
def house(tmp_path):
    """A copy of what the script reads, and a PATH on which nothing lies but a shell's own tools."""
    for folder in ("website", "bin"):
        (tmp_path / folder).mkdir()
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for path in ("website/setup.sh", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / path, tmp_path / path)
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    return tmp_path


def run(house, version=None):
    if version:
        python = house / "bin" / "python3"
        python.write_text(PYTHON.replace("VERSION", str(version)))
        python.chmod(0o755)
    command = ["sh", "website/setup.sh"]
    return subprocess.run(command, cwd=house, env={"PATH": str(house / "bin")}, capture_output=True, text=True)


@pytest.mark.parametrize("version", [None, (3, 10, 14), (3, 14, 0)])
def test_no_python_that_fits(house, version):
    done = run(house, version)
    assert done.returncode == 1 and done.stderr.startswith("make: this book needs Python 3.11, 3.12 or 3.13")
    assert not (house / ".venv").exists()


def test_installs_once_and_again_when_the_requirements_change(house):
    assert run(house, (3, 11, 2)).returncode == 0
    asked = house / "asked"
    assert "--editable ." in asked.read_text()
    asked.unlink()
    second = run(house)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "") and not asked.exists()
    (house / "requirements.txt").write_text("torch==2.13.1\n")
    assert run(house).returncode == 0
    assert "pip install" in asked.read_text() and "-m venv" not in asked.read_text()
