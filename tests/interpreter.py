"""Tests of Triton kernels in its interpreter, which has to be chosen before Triton is imported: in another process."""

import os
import subprocess
import sys
from pathlib import Path

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def interpreted(test):
    """A test for the interpreter's process; elsewhere it does not exist."""
    test.__test__ = INTERPRETED
    return test


def run_interpreted(file):
    """Run the tests of a file in the interpreter's process."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not gpu", file]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    folder = Path(__file__).parents[1]
    ran = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=1200)
    assert ran.returncode == 0 and " passed" in ran.stdout, ran.stdout + ran.stderr
