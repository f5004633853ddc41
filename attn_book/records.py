"""Scripts that store measurements, and the commit and machine that each result names (``recorded``, ``benchmarks``)."""

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import torch


def scripts(folder: Path) -> list[str]:
    """The names of the scripts in a folder, in alphabetical order, without ``run``, which runs them."""
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "run")


def load(script: Path) -> ModuleType:
    """Import a script by its path."""
    spec = importlib.util.spec_from_file_location(f"{script.parent.name}_{script.stem}", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commit(folder: Path) -> str:
    """The commit that is checked out in ``folder``, followed by ``-dirty`` if files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "not in a git repository"


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of Python and of these packages; "not installed" for one that is absent."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine() -> str:
    """A description of the machine: what measured times and memory depend on, without its name."""
    words = [platform.system(), platform.machine(), f"{os.cpu_count()} CPU cores", f"{torch.get_num_threads()} threads"]
    if torch.cuda.is_available():
        words.append(torch.cuda.get_device_name())
    return ", ".join(words)
