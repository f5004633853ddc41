"""The README and CONTRIBUTING are true: their code runs, their tree exists, their commands are the Makefile's."""

import re

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
