"""Numbers the chapters in the order of ``_toc.yml``: their files, what is named after them, and every mention of them.

To insert a chapter, call it ``chapters/00_name.ipynb``, list it in ``_toc.yml`` where it belongs, and ``make number``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
TEXT = {".cfg", ".ipynb", ".json", ".md", ".py", ".yml", ""}


def renamed(toc: dict[str, Any]) -> dict[str, str]:
    """Each numbered chapter's name with the name that its place in the table of contents gives it.

    Raises:
        ValueError: if a name does not begin with two digits, or two chapters differ in their digits only.
    """
    parts = [part["chapters"] for part in toc["parts"] if part.get("numbered")]
    old = [Path(chapter["file"]).name for part in parts for chapter in part]
    if not all(re.fullmatch(r"\d\d_\w+", stem) for stem in old) or len({stem[2:] for stem in old}) < len(old):
        raise ValueError(f"_toc.yml: expected chapters NN_name, each with a name of its own, got {', '.join(old)}")
    return {stem: f"{number:02}{stem[2:]}" for number, stem in enumerate(old, 1)}


def numbered(text: str, names: dict[str, str]) -> str:
    """The text with the new names, and with their numbers in links such as ``[chapter 8](08_flash)``."""
    text = re.sub(rf"(?<!\w)({'|'.join(names)})(?!\w)", lambda name: names[name[0]], text)
    return re.sub(
        r"(\[(?:[Cc]hapter )?)\d+(\]\((?:(?:\.\./)?chapters/)?)(\d\d)(?=_\w)",
        lambda link: f"{link[1]}{int(link[3])}{link[2]}{link[3]}",
        text,
    )


def main() -> int:
    """Rewrite and rename what git tracks."""
    names = renamed(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8")))
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    moved = {}
    for name in filter(None, tracked.split("\0")):
        path = ROOT / name
        if path.suffix in TEXT:
            before = path.read_text(encoding="utf-8")
            after = numbered(before, names)
            if after != before:
                path.write_text(after, encoding="utf-8")
        if numbered(name, names) != name:  # 05_a may become 06_a while 06_b becomes 05_b: aside first, then into place
            moved[path] = ROOT / numbered(name, names)
            path.rename(path.with_name(path.name + ".moved"))
    for path, target in moved.items():
        target.parent.mkdir(exist_ok=True)
        path.with_name(path.name + ".moved").rename(target)
        print(f"{path.relative_to(ROOT)} → {target.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
