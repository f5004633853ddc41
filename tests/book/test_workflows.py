"""Continuous integration: workflows call commands that exist, and may do only what they must."""

import re

import pytest
import yaml

from tests.book.built_site import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_what_exists_with_few_rights(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    jobs = [job for job in workflow["jobs"].values() if "uses" not in job]
    assert all(job["timeout-minutes"] <= 120 for job in jobs)
    steps = [step for job in jobs for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in used)
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    asked = {word for step in steps for word in re.findall(r"^\s*make ([a-z-]+)", step.get("run", ""), flags=re.M)}
    assert asked <= there
