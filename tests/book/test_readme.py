"""The README and CONTRIBUTING are true: their code runs, their tree exists, their commands are the Makefile's."""

import json
import re
import subprocess

import pytest

from tests.book.built_site import ROOT
from tests.book.notebooks import python_blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "chapters" / "instructors.ipynb").read_text(encoding="utf-8")


def test_the_package_in_ten_lines_runs(capsys):
    (code,) = python_blocks(ROOT / "README.md")
    lines = [line for line in code.splitlines() if line.strip() and not line.startswith(("from ", "import "))]
    assert len(lines) <= 10
    # A corpus that trains in a second; all else as it stands.
    small, times = re.subn(r"corpus\(\)", "corpus(train=64, valid=4, test=4, structures=4, pronouns=4)", code)
    assert times == 1
    names = {}
    exec(compile(small, "README.md", "exec"), names)
    assert capsys.readouterr().out.strip()
    heatmap = [value for value in names.values() if type(value).__name__ == "AttentionHeatmap"]
    assert heatmap and "attn-static" in heatmap[0].static_html()


def tree():
    """The paths that the README's tree shows."""
    (block,) = [b for b in re.findall(r"^```text\n(.*?)^```", README, flags=re.M | re.S) if "attn_core/" in b]
    folders, paths = [], []
    for line in block.splitlines():
        name = line.split()[0] if line.strip() else ""
        if not name:
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        assert depth <= len(folders), line
        folders = folders[:depth]
        paths.append("/".join([*folders, name.rstrip("/")]))
        if name.endswith("/"):
            folders.append(name.rstrip("/"))
        assert len(line.split(None, 1)) == 2, f"{name} has no description"
    return paths


def test_every_path_of_the_tree_exists():
    assert len(tree()) > 20
    assert not [path for path in tree() if not (ROOT / path).exists()]


def test_the_tree_leaves_no_folder_out():
    listed = set(tree())
    folders = {p.parent for package in ("attn_core", "attn_book") for p in (ROOT / package).rglob("*.py")}
    assert {folder.relative_to(ROOT).as_posix() for folder in folders} <= listed
    known = {path.split("/")[0] for path in listed}
    made = {"_build", ".venv", ".git", ".gitignore", ".gitattributes", "__pycache__", "attn_core.egg-info"}
    top = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.endswith("_cache") and p.name not in made}
    try:
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        top &= {line.split("/")[0] for line in tracked.splitlines()}
    except (OSError, subprocess.CalledProcessError):
        pass  # a copy without git: then whatever lies there counts
    assert not top - known


COMMAND = r"make (-C exercises )?([a-z][a-z-]*)"


def commands(option, makefile):
    """What can be said after `make`: the option that names the folder, and a target."""
    return {(option, name) for name in re.findall(r"^([a-z-]+):", makefile.read_text(encoding="utf-8"), flags=re.M)}


@pytest.mark.parametrize("text", [README, CONTRIBUTING, (ROOT / "index.md").read_text(encoding="utf-8"), GUIDE])
def test_every_command_named_exists(text):
    blocks = re.findall(r"^\s*```bash\n(.*?)```", text, flags=re.M | re.S)
    named = set(re.findall(f"`{COMMAND}", text)) | set(re.findall(rf"^\s*{COMMAND}", "\n".join(blocks), flags=re.M))
    known = commands("", ROOT / "Makefile") | commands("-C exercises ", ROOT / "exercises" / "Makefile")
    assert named and named <= known


def test_local_links_exist():
    for name in ("README.md", "CONTRIBUTING.md", "DECISIONS.md", "CHANGELOG.md", "recorded/README.md"):
        path = ROOT / name
        for link in re.findall(r"\]\(([^)#\s]+)\)", path.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (path.parent / link).exists(), f"{name}: {link}"


def test_the_examples_of_contributing_are_cells_that_parse():
    for block in python_blocks(ROOT / "CONTRIBUTING.md"):
        compile(block, "CONTRIBUTING.md", "exec")
    for block in re.findall(r"^```json\n(.*?)^```", CONTRIBUTING, flags=re.M | re.S):
        json.loads(block)
