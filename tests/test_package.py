import ast
import subprocess
import sys
from pathlib import Path

import pytest

import attn_core

PACKAGE = Path(attn_core.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# Who may import whom: a module imports from its own room and from rooms that stand before it.
ROOMS = [
    ("companion", "contract", "device", "paging"),
    ("capture", "data", "masks", "scores", "maps", "positions", "cache"),
    ("mechanisms",),
    ("longformer", "multi_head", "paged"),
    ("seq2seq", "transformer", "context", "induction", "metrics"),
    ("checkpoint", "decode"),
    ("train",),
    ("pretrain", "vision"),
    ("plots",),
    ("widgets",),
    ("check",),
]


def room(module: str) -> int:
    return next(i for i, names in enumerate(ROOMS) if module.split(".")[0] in names)


def test_importing_it_loads_no_pictures_no_widgets_and_no_scorer():
    code = "import sys, attn_core; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "torch" in loaded
    assert not {"matplotlib", "anywidget", "ipywidgets", "sacrebleu", "pandas", "IPython"} & set(loaded)


def test_importing_it_changes_no_global_state():
    code = (
        "import torch; before = torch.random.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()\n"
        "import attn_core, attn_core.plots, attn_core.widgets, attn_core.train\n"
        "after = torch.random.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()\n"
        "assert torch.equal(before[0], after[0]) and before[1:] == after[1:]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there():
    assert all(hasattr(attn_core, name) for name in attn_core.__all__)
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_upstream_and_files_stay_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    own = path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
    if own == "__init__":
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "attn_core":
            inner = node.module.removeprefix("attn_core").removeprefix(".")
            for name in [inner] if inner else [alias.name for alias in node.names]:
                assert room(name) <= room(own), f"{own} imports {name}, which stands downstream of it"


def test_every_public_docstring_says_something():
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name}"
                for inner in node.body if isinstance(node, ast.ClassDef) else ():
                    if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                        assert ast.get_docstring(inner), f"{path.name}: {node.name}.{inner.name}"
