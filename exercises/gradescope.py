"""`make -C exercises gradescope`: an archive with which Gradescope grades an assignment, and a workflow for GitHub
Classroom.

Gradescope unpacks the archive into ``/autograder/source``, runs its ``setup.sh`` once, and ``run_autograder`` for each
submission. There is no sandbox there; the Instructors' guide says what that costs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import nbformat
import yaml

import attn_book
import attn_core
from exercises.grading import Graded, grade
from exercises.judge import SECONDS
from exercises.submission import grade_id, is_test

HERE = Path(__file__).resolve().parent
KIT = ("borrowed", "gradescope", "grading", "judge", "player", "sandbox", "submission", "wire")
NEEDED = ("ipython", "nbformat", "PyYAML")
"""What grading imports, apart from the book's own packages and what these depend on."""
TESTS = "assignment"
"""The folder with the hidden tests, which a submission must not read."""
SETUP = """#!/bin/sh
# Runs once, when Gradescope builds its image: a Python, and what grading imports, where any user may read it.
set -eu
cd "$(dirname "$0")"
apt-get update
apt-get install -y python3-venv
python3 -m venv /opt/uv
/opt/uv/bin/pip install uv
export UV_PYTHON_INSTALL_DIR=/opt/python
/opt/uv/bin/uv venv --managed-python --python 3.12 /opt/grading
/opt/uv/bin/uv pip install --python /opt/grading/bin/python --torch-backend cpu -r requirements.txt
"""
RUN = """#!/bin/sh
# Grades ../submission into ../results/results.json; Gradescope copies this script out of the archive's folder.
here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/source" && exec "${PYTHON:-/opt/grading/bin/python}" -m exercises.gradescope grade "$here"
"""
FAILED = (
    "import json, sys; sys.exit(any(out['output_type'] == 'error' for cell in json.load(open('run.ipynb'))['cells'] \
if cell['metadata'].get('nbgrader', {}).get('grade_id') == sys.argv[1] for out in cell['outputs']))"
)
"""A program that fails if a cell of the notebook that was run has."""


def archive(course: Path, name: str, place: Path) -> None:
    """Write the archive of an assignment that has been released."""
    book = [re.split(r"[^\w-]", one)[0] for one in requires("attn_core") or () if "extra ==" not in one]
    requirements = "".join(f"{one}=={version(one).split('+')[0]}\n" for one in (*book, *NEEDED))
    texts = {"setup.sh": SETUP, "run_autograder": RUN, "requirements.txt": requirements}
    files = {f"exercises/{module}.py": HERE / f"{module}.py" for module in KIT}
    files |= {f"{TESTS}/{kind}/{name}.ipynb": course / kind / name / f"{name}.ipynb" for kind in ("source", "release")}
    for package in (attn_book, attn_core):
        folder = Path(package.__path__[0])
        found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc")
        files |= {path.relative_to(folder.parent).as_posix(): path for path in found}
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as out:
        for member, text in texts.items():
            about = zipfile.ZipInfo(member)
            about.create_system, about.external_attr = 3, 0o755 << 16  # Unix, and may be run
            out.writestr(about, text)
        for member, path in files.items():
            out.write(path, member)


def grade_there(root: Path) -> dict[str, Any]:
    """Grade what lies in ``root/submission``; what Gradescope calls results.

    Raises:
        RuntimeError: it could not be graded. Gradescope then says so, and nobody gets points or loses any.
    """
    tests = root / "source" / TESTS
    tests.chmod(0o700)
    (source,) = tests.glob("source/*.ipynb")
    done = grade(root / "submission", source, tests / "release" / source.name, SECONDS, shut_in=False)
    if done.notebook is None:
        raise RuntimeError("; ".join(done.notes))
    return results(done)


def results(done: Graded) -> dict[str, Any]:
    """A graded submission as Gradescope reads it: each test, and what was odd."""
    tests, said = [], [f"{note[0].upper()}{note[1:]}." for note in done.notes]
    for place, cell in enumerate(done.notebook.cells if done.notebook else ()):
        name = grade_id(cell)
        failed = "\n".join(line for out in cell.get("outputs", ()) for line in out.get("traceback", ()))
        if is_test(cell):
            given, most = done.points[str(name)], float(cell.metadata.nbgrader.points)
            printed = "".join(out.get("text", "") for out in cell.outputs)
            about = {"name": name, "score": given, "max_score": most, "status": "passed" if given else "failed"}
            tests.append(about | {"output": printed + failed, "output_format": "text", "visibility": "visible"})
        elif failed:
            said.append(f"Cell {place + 1}: {failed}")
    return {
        "score": sum(test["score"] for test in tests),
        "output": "\n".join(said),
        "output_format": "text",
        "stdout_visibility": "hidden",
        "tests": tests,
    }


def workflow(course: Path, name: str, address: str) -> str:
    """A workflow for GitHub Classroom: the visible tests, since a student can read all that lies in the repository."""
    notebook = nbformat.read(course / "release" / name / f"{name}.ipynb", as_version=4)
    shown = [cell.metadata.nbgrader for cell in notebook.cells if is_test(cell) and "check." in cell.source]
    command = "jupyter nbconvert --to notebook --execute --allow-errors --output run.ipynb"
    install = f"pip install --extra-index-url https://download.pytorch.org/whl/cpu git+{address} ipykernel nbconvert"
    steps: list[dict[str, Any]] = [
        {"uses": "actions/checkout@v4"},
        {"uses": "actions/setup-python@v5", "with": {"python-version": "3.12"}},
        {"run": f"{install}\n{command} {name}.ipynb"},
        *(
            {
                "id": one.grade_id,
                "uses": "classroom-resources/autograding-command-grader@v1",
                "with": {
                    "test-name": one.grade_id,
                    "command": f'python -c "{FAILED}" {one.grade_id}',
                    "timeout": 10,
                    "max-score": one.points,
                },
            }
            for one in shown
        ),
        {
            "uses": "classroom-resources/autograding-grading-reporter@v1",
            "env": {
                f"{one.grade_id.upper()}_RESULTS": f"${{{{steps.{one.grade_id}.outputs.result}}}}" for one in shown
            },
            "with": {"runners": ",".join(one.grade_id for one in shown)},
        },
    ]
    job = {"runs-on": "ubuntu-latest", "if": "github.actor != 'github-classroom[bot]'", "steps": steps}
    allowed = {"checks": "write", "actions": "read", "contents": "read"}
    about = {"name": "Tests", "on": ["push"], "permissions": allowed, "jobs": {"run-autograding-tests": job}}
    return yaml.safe_dump(about, sort_keys=False, width=1000)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make -C exercises gradescope")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="write the archive and the workflow of each assignment")
    build.add_argument("names", nargs="*", help="which; all if none")
    build.add_argument("--course", type=Path, default=HERE, help="the folder of the course")
    commands.add_parser("grade", help="on Gradescope: grade one submission").add_argument("root", type=Path)
    options = parser.parse_args()
    if options.command == "grade":
        place = options.root / "results" / "results.json"
        place.write_text(json.dumps(grade_there(options.root)), encoding="utf-8")
        return
    known = sorted(path.stem for path in options.course.glob("release/*/*.ipynb"))
    if odd := set(options.names) - set(known):
        sys.exit(f"make: ASSIGNMENTS: expected some of {', '.join(known) or 'none'}, got {', '.join(odd)}")
    if not known:
        sys.exit("make: no assignment is released. Run `make -C exercises assignments` before.")
    book = yaml.safe_load((HERE.parent / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    for name in options.names or known:
        folder = options.course / "export" / name
        folder.mkdir(parents=True, exist_ok=True)
        archive(options.course, name, folder / "autograder.zip")
        (folder / "classroom.yml").write_text(workflow(options.course, name, book), encoding="utf-8")
        print(folder / "autograder.zip", folder / "classroom.yml", sep="\n")


if __name__ == "__main__":
    main()
