"""Sets the repository's address everywhere, for a fork: ``make repository URL=https://github.com/OWNER/NAME``.

It is set in ``_config.yml``; first cells of notebooks, badges, links, the site's own address and the package's metadata
repeat it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = re.compile(r"https://github\.com/([\w.-]+)/([\w-]+)")
TEXT = {".cff", ".ipynb", ".md", ".toml", ".yml"}


def files() -> list[Path]:
    """What git tracks and may name the address, but for the changelog, which tells of the past."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in tracked.split("\0") if name and name != "CHANGELOG.md"]
    return [path for path in paths if path.suffix in TEXT and path.exists()]


def readdressed(text: str, old: str, new: str) -> str:
    """The text with the new address instead of the old one, both ``https://github.com/OWNER/NAME``.

    Raises:
        ValueError: if an address is of another form.
    """
    pairs = []
    for url in (old, new):
        found = ADDRESS.fullmatch(url)
        if not found:
            raise ValueError(f"URL: expected https://github.com/OWNER/NAME, got {url}")
        pairs.append(found.groups())
    (old_owner, old_name), (owner, name) = pairs
    text = text.replace(f"{old_owner}.github.io/{old_name}/", f"{owner}.github.io/{name}/")
    text = re.sub(rf"(?<![\w-]){old_owner}/{old_name}(?![\w-])", f"{owner}/{name}", text)
    # The folder of a clone, and the site's path on its host.
    return re.sub(rf"(/content/|\bcd |[\"' ]/){old_name}(?![\w-])", rf"\g<1>{name}", text)


def main(url: str) -> int:
    """Rewrite what names the address."""
    old = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    changed = 0
    for path in files():
        before = path.read_text(encoding="utf-8")
        after = readdressed(before, old, url)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed += 1
    print(f"{old} → {url} in {changed} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
