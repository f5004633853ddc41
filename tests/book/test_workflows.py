"""Continuous integration: workflows call commands that exist, on supported Pythons, and may do only what they must."""

import json
import re
import tomllib

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.book.built_site import ROOT

FOLDER = ROOT / ".github" / "workflows"
NAMES = ["pages", "test", "weekly"]
each = pytest.mark.parametrize("name", NAMES)


def workflow(name):
    return yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def triggers(name):
    # To YAML 1.1, the key `on` is the truth value.
    return workflow(name)[True]


def jobs(name):
    """The jobs with steps of their own; the others call another workflow."""
    return {key: job for key, job in workflow(name)["jobs"].items() if "uses" not in job}


def steps(name):
    return [step for job in jobs(name).values() for step in job["steps"]]


def filled_in(job, text):
    """A job's text once for each entry of its matrix, with the entry's values."""
    matrix = job.get("strategy", {}).get("matrix", {"include": [{}]})
    entries = matrix["include"] if "include" in matrix else [{"python": version} for version in matrix["python"]]
    return [re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found, entry=entry: entry[found[1]], text) for entry in entries]


def commands(name):
    return "\n".join(
        text for job in jobs(name).values() for step in job["steps"] for text in filled_in(job, step.get("run", ""))
    )


def targets(text):
    """What `make` is told to make."""
    words = [word for line in re.findall(r"^\s*make (.+)", text, flags=re.M) for word in line.split()]
    return {word for word in words if "=" not in word}


def pythons(name):
    """The versions of Python that a workflow asks for."""
    asked = [
        (job, step.get("with", {}).get("python-version", "")) for job in jobs(name).values() for step in job["steps"]
    ]
    return {version for job, text in asked for version in filled_in(job, text) if version}


def test_these_are_all_the_workflows():
    assert sorted(path.name for path in FOLDER.iterdir()) == [f"{name}.yml" for name in NAMES]


@each
def test_every_make_target_exists(name):
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    assert targets(commands(name)) and targets(commands(name)) <= there


@each
def test_what_make_does_is_not_written_again(name):
    assert not re.findall(r"\b(?:pytest|ruff|mypy|jupyter-book|requirements\S*\.txt)\b", commands(name))


def test_the_whole_suite_runs_on_both_ends_of_the_range():
    rest = ("browser", "exercises", "translation", "colab", "elsewhere")
    assert {"test", "coverage", "bench-quick", *(f"test-{what}" for what in rest)} <= targets(commands("test"))
    entries = jobs("test")["part"]["strategy"]["matrix"]["include"]
    assert {entry["python"] for entry in entries if entry["make"] == "test"} >= {"3.11", "3.13"}
    assert {"3.11", "3.13"} <= pythons("weekly")
    assert {"push", "pull_request", "workflow_call"} <= set(triggers("test"))


@each
def test_pythons_are_supported(name):
    supported = SpecifierSet(project()["requires-python"])
    # Text, not numbers: to YAML, 3.10 is 3.1.
    assert pythons(name) and all(isinstance(version, str) and version in supported for version in pythons(name))
    # And what website/setup.sh makes .venv from is that Python.
    for job in jobs(name).values():
        (asked,) = [s["with"]["python-version"] for s in job["steps"] if "setup-python" in s.get("uses", "")] or [None]
        assert asked is None or job["env"]["PYTHON"] == f"python{asked}"


@each
def test_rights_are_declared_and_small(name):
    assert workflow(name)["permissions"] == {"contents": "read"}
    for key, job in workflow(name)["jobs"].items():
        allowed = {"pages": "write", "id-token": "write"} if key == "deploy" else {}
        assert job.get("permissions", {}) == allowed, key


@each
def test_every_job_ends(name):
    assert all(1 <= job["timeout-minutes"] <= 60 for job in jobs(name).values())
    assert all(job["strategy"]["fail-fast"] is False for job in jobs(name).values() if "strategy" in job)


@each
def test_actions_are_github_s_own_and_pinned(name):
    used = [step["uses"] for step in steps(name) if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in used)


def test_the_site_is_published_from_main_alone_and_after_the_tests():
    assert triggers("pages") == {"push": {"branches": ["main"]}}
    called = workflow("pages")["jobs"]
    assert called["test"]["uses"] == "./.github/workflows/test.yml"
    assert called["build"]["needs"] == "test" and called["deploy"]["needs"] == "build"
    assert not [job for job in called.values() if "if" in job]  # a job that needs another waits for its success
    assert workflow("pages")["concurrency"]["group"] == "pages"
    (upload,) = [step for step in called["build"]["steps"] if "upload-pages-artifact" in step.get("uses", "")]
    assert upload["with"]["path"] == "_build/html" and "make book" in commands("pages")
    others = [path.name for path in FOLDER.iterdir() if "deploy-pages" in path.read_text(encoding="utf-8")]
    assert others == ["pages.yml"]


def test_the_newest_versions_are_tried_once_a_week():
    assert set(triggers("weekly")) == {"schedule", "workflow_dispatch"}
    ((_, _, day_of_month, month, day_of_week),) = [entry["cron"].split() for entry in triggers("weekly")["schedule"]]
    assert (day_of_month, month) == ("*", "*") and day_of_week in set("0123456")
    assert {"make unit", "make notebooks", "make linkcheck"} <= set(commands("weekly").splitlines())
    extras = set(re.search(r"\.\[([a-z,]+)\]", commands("weekly"))[1].split(","))
    assert {"book", "test"} <= extras <= set(project()["optional-dependencies"])
    assert "--upgrade-strategy eager" in commands("weekly")


def test_ci_runs_what_the_workflow_runs():
    again = {"coverage", "test-elsewhere"}  # the suite once more, for which there is time where jobs run side by side
    assert targets((ROOT / ".ci" / "run").read_text(encoding="utf-8")) | again == targets(commands("test"))


def test_the_devcontainer_makes_the_environment():
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert settings["postCreateCommand"] == "make setup"
    python = settings["image"].rpartition(":")[2]
    assert python in SpecifierSet(project()["requires-python"])
