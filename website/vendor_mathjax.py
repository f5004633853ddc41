"""Copy MathJax and its fonts, as installed from PyPI, to where the site takes them from (see html_extra_path)."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path

PACKAGE = "sphinx-mathjax-offline"
# The parts that our formulas need, as _config.yml lists them, and what those load in turn. MathJax's own bundles are
# twice as large, with its menu and with all packages of TeX.
WANTED = (
    "startup.js",
    "core.js",
    "input/tex-base.js",
    "input/tex/extensions/ams.js",
    "output/chtml.js",
    "output/chtml/fonts/tex.js",
    "output/chtml/fonts/woff-v2",
    "a11y/assistive-mml.js",
)
TARGET = Path(__file__).parent / "vendor" / "mathjax"


def source_folder() -> Path:
    """The folder of the installed package that holds MathJax: located, not imported, for its name is no identifier."""
    for file in importlib.metadata.files(PACKAGE) or []:
        if file.name == WANTED[0]:
            return Path(str(file.locate())).parent
    raise FileNotFoundError(f"{PACKAGE} holds no {WANTED[0]}: is requirements.txt installed?")


def main() -> None:
    """Copy them (1.3 MB of 24), unless the same of that version are there already."""
    version = f"{importlib.metadata.version(PACKAGE)} {' '.join(WANTED)}"
    stamp = TARGET / "VERSION"
    if stamp.exists() and stamp.read_text() == version:
        return
    source = source_folder()
    shutil.rmtree(TARGET, ignore_errors=True)
    for name in WANTED:
        target = TARGET / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target)
        else:
            shutil.copy2(source / name, target)
    stamp.write_text(version)
    print(f"MathJax copied to {TARGET.relative_to(Path.cwd())}", file=sys.stderr)


if __name__ == "__main__":
    main()
