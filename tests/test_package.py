"""The shape of the house: which package imports which, how long a file may be, and what importing costs."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import attn_core

ROOT = Path(attn_core.__file__).parents[1]
PACKAGES = {
    "attn_core": set(),
    "attn_book": {"attn_core"},
    "exercises": {"attn_core", "attn_book"},
    "website": {"attn_core", "attn_book"},
    "benchmarks": {"attn_core", "attn_book"},
    "recorded": {"attn_core", "attn_book", "benchmarks", "exercises"},
}
"""Which packages each package may import, beside itself."""
MODULES = {path.relative_to(ROOT): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}
OURS = {path: full for path, full in MODULES.items() if path.parts[0] in ("attn_core", "attn_book")}


def name_of(path):
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in MODULES}


def imports(path):
    """The modules of ours that a file imports, wherever the statement stands in it."""
    for node in ast.walk(ast.parse(MODULES[path].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in NAMES)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from (inner & NAMES) or {node.module}


GRAPH = {name_of(path): set(imports(path)) for path in MODULES}


def layers(graph):
    """The graph as a drawing: in each line, what imports only from the lines above it.

    Raises graphlib.CycleError where there are no such lines.
    """
    sorter = graphlib.TopologicalSorter(graph)
    sorter.prepare()
    lines = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        lines.append(" ".join(ready))
        sorter.done(*ready)
    return lines


def folder_of(module):
    """A part of a package: a folder in it, or a module beside its folders."""
    return ".".join(module.split(".")[:2])


def test_imports_between_packages_point_one_way():
    wrong = [
        f"{module} imports {other}"
        for module, others in GRAPH.items()
        for other in others
        if (to := other.split(".")[0]) != (own := module.split(".")[0]) and to not in PACKAGES[own]
    ]
    assert not wrong


def test_no_module_and_no_folder_imports_itself_in_a_circle():
    print(*layers(GRAPH), sep="\n")
    folders = {}
    for module, others in GRAPH.items():
        if module not in PACKAGES:  # an __init__ gathers what its folder has
            folders.setdefault(folder_of(module), set()).update(map(folder_of, others))
    print(*layers({folder: others - {folder} - PACKAGES.keys() for folder, others in folders.items()}), sep="\n")


def test_a_circle_is_found():
    with pytest.raises(graphlib.CycleError):
        layers({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_importing_it_loads_no_pictures_no_widgets_and_no_scorer():
    code = "import sys, attn_core; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "torch" in loaded
    assert not {"attn_book", "matplotlib", "anywidget", "ipywidgets", "sacrebleu", "pandas", "IPython"} & set(loaded)


def test_importing_them_changes_no_global_state():
    code = (
        "import torch; before = torch.random.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()\n"
        "import attn_core, attn_book.train, attn_book.plots, attn_book.widgets, attn_book.check\n"
        "after = torch.random.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()\n"
        "assert torch.equal(before[0], after[0]) and before[1:] == after[1:]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there():
    assert all(hasattr(attn_core, name) for name in attn_core.__all__)
    assert all((ROOT / package / "py.typed").exists() for package in ("attn_core", "attn_book"))


def test_the_core_is_small_and_no_file_is_two():
    lengths = {path: len(full.read_text(encoding="utf-8").splitlines()) for path, full in OURS.items()}
    assert not [str(path) for path, length in lengths.items() if length > 400]
    assert sum(length for path, length in lengths.items() if path.parts[0] == "attn_core") <= CORE


CORE = 8_500
"""Lines of Python that the core may have: what can be read in a weekend."""


def test_every_public_docstring_says_something():
    for path, full in OURS.items():
        tree = ast.parse(full.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path}: {node.name}"
                for inner in node.body if isinstance(node, ast.ClassDef) else ():
                    if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                        assert ast.get_docstring(inner), f"{path}: {node.name}.{inner.name}"
