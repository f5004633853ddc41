"""These tests need nbgrader and bubblewrap; without them none is collected, and the first line says so."""

import importlib.util
import shutil

import pytest

MISSING = [
    *([] if importlib.util.find_spec("nbgrader") else ["nbgrader (make test-exercises installs it)"]),
    *([] if shutil.which("bwrap") else ["bubblewrap (Debian: apt-get install bubblewrap)"]),
]
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_report_header():
    """Say why nothing is tested here."""
    return f"tests/exercises: left out, since there is no {' and no '.join(MISSING)}" if MISSING else None


@pytest.fixture(scope="session")
def made_course(tmp_path_factory):
    """A course with one assignment, released; to be copied."""
    from tests.exercises.course import make_course

    return make_course(tmp_path_factory.mktemp("made"), ["01_pooling"])


@pytest.fixture(scope="module")
def course(made_course, tmp_path_factory):
    """A copy of it for the tests of a file."""
    return shutil.copytree(made_course, tmp_path_factory.mktemp("course") / "course")
