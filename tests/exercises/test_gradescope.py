"""What is exported for Gradescope and GitHub Classroom, run as it is run there, without a network."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

import nbformat
import pytest
import yaml

from exercises.gradescope import TESTS, main
from tests.exercises.course import ROOT, answered, released, solutions, with_cell

NAME, SECRET = "01_pooling", "tokn-5e81d2"
# Reads what it should not, forges its results and the tools of the tests, and says what it has found.
HOSTILE = """
import glob, os, torch
torch.allclose = torch.equal = torch.isclose = lambda *_, **__: True
found = dict(os.environ)
for path in [*glob.glob("{root}/**/*", recursive=True), *glob.glob("/proc/*/environ")]:
    try:
        if "/{tests}/" in path or "/proc" in path:
            found[path] = str("{secret}"[::-1].encode() in open(path, "rb").read())
        else:
            open(path, "ab").close()
            found[path] = "written to"
    except OSError:
        pass
kept = " ".join(key for key, value in found.items() if value in ("True", "written to") or "/{tests}/" in key)
raise RuntimeError(kept or "nothing")
"""


@pytest.fixture(scope="module")
def exported(course):
    """The folder that the command writes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["make", "build", "--course", str(course), NAME])
        main()
    return course / "export" / NAME


@pytest.fixture(scope="module")
def graded(exported):
    """What Gradescope does with a submission, in a folder that any user may read."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    with zipfile.ZipFile(exported / "autograder.zip") as archive:
        for one in archive.infolist():
            path = Path(archive.extract(one, root / "source"))
            path.chmod(0o755 if one.external_attr >> 16 & 0o100 else 0o644)
    subprocess.run(["sh", "-n", root / "source" / "setup.sh"], check=True)  # it needs a network to run
    shutil.copy(root / "source" / "run_autograder", root)
    (root / "results").mkdir()
    # Its Python lies where any user may read it, as one in a home may not: the packages are those of this one.
    python = root / "python"
    packages = root / "venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for folder in (python, packages, root / "venv" / "bin"):
        folder.mkdir(parents=True)
    (root / "venv" / "pyvenv.cfg").write_text(f"home = {python}/bin\n")
    (root / "venv" / "bin" / "python").symlink_to(python / "bin" / Path(sys.executable).resolve().name)
    (packages / "installed.pth").write_text(sysconfig.get_path("purelib"))
    rights = ("--cap-add", "ALL") if os.getuid() == 0 else ()
    apart = ("bwrap", "--dev-bind", "/", "/", *rights, "--ro-bind", sys.base_prefix, python)

    def grade(notebook, file=f"{NAME}.ipynb"):
        shutil.rmtree(root / "submission", ignore_errors=True)
        (root / "submission").mkdir()
        nbformat.write(notebook, root / "submission" / file)
        clean = {"PATH": "/usr/bin:/bin", "TOKEN": SECRET, "PYTHON": str(root / "venv" / "bin" / "python")}
        subprocess.run([*apart, root / "run_autograder"], cwd=root, env=clean, check=True)
        return json.loads((root / "results" / "results.json").read_text())

    grade.root = root
    yield grade
    shutil.rmtree(root)


def test_a_right_submission_earns_all(course, graded):
    done = graded(answered(course, NAME, solutions(course, NAME)), file="My copy.ipynb")
    assert done["score"] == sum(test["max_score"] for test in done["tests"]) == 15
    assert {test["status"] for test in done["tests"]} == {"passed"} and done["stdout_visibility"] == "hidden"
    assert done["output"] == "Taken from the file 'My copy.ipynb'."


def test_a_crash_costs_its_own_answer_alone(course, graded):
    crash = "def attention(*args):\n    import ctypes\n    ctypes.string_at(0)"
    done = graded(answered(course, NAME, {**solutions(course, NAME), "attention": crash}))
    lost = {test["name"] for test in done["tests"] if not test["score"]}
    assert lost == {"attention_usual", "attention_hidden"}
    assert "ended by itself" in done["tests"][0]["output"]


def test_a_hostile_submission_gets_nothing_by_force(course, graded):
    code = HOSTILE.format(root=graded.root, tests=TESTS, secret=SECRET[::-1])
    done = graded(with_cell(released(course, NAME), code))
    assert done["score"] == 0 and all("not yet" in test["output"] for test in done["tests"] if "usual" in test["name"])
    if os.getuid() == 0:  # as on Gradescope
        assert done["output"].endswith(": RuntimeError: nothing")
    assert "BEGIN HIDDEN" not in json.dumps(done) and SECRET not in json.dumps(done)


def test_the_workflow_for_github_classroom_runs_each_visible_test(course, exported, tmp_path):
    job = yaml.safe_load((exported / "classroom.yml").read_text())["jobs"]["run-autograding-tests"]
    half = answered(course, NAME, {"attention": solutions(course, NAME)["attention"]})
    nbformat.write(half, tmp_path / f"{NAME}.ipynb")
    install, run = next(step["run"] for step in job["steps"] if "run" in step).splitlines()
    assert install.startswith("pip install ") and "git+https://" in install
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(run, shell=True, cwd=tmp_path, env=environment, check=True, capture_output=True)
    tests = [step["with"] for step in job["steps"] if "command-grader" in step.get("uses", "")]
    codes = [subprocess.run(one["command"], shell=True, cwd=tmp_path, env=environment).returncode for one in tests]
    assert [one["test-name"] for one in tests][0] == "attention_usual" and codes == [0, 1, 1]


def test_an_assignment_that_is_not_released_is_refused(course, monkeypatch):
    monkeypatch.setattr("sys.argv", ["make", "build", "--course", str(course), "99_none"])
    with pytest.raises(SystemExit, match="ASSIGNMENTS: expected some of 01_pooling, got 99_none"):
        main()
