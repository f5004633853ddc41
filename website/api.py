"""Writes the page that lists the public names, reference/api.md: `make api`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "reference" / "api.md"
HEAD = """# The package

What the chapters import from `attn_core` can be imported into any project. Each name below comes with the first
sentence of its documentation; `help(name)` shows the rest: shapes, errors, and the paper that it comes from. The
headings are modules of `attn_core`, so `from attn_core.masks import causal` imports a function listed under `masks`.
The contract that all mechanisms share is shown by `help(attn_core)`. At the end stand the modules of `attn_book` that
feed, train and judge the models.
"""
LEFT_OUT = (
    *("attn_core.contract", "attn_core.derivatives", "attn_core.device", "attn_core.projections"),
    "attn_core.mechanisms.flash_triton",
)
"""Modules for those who change the package rather than use it, or whose names stand at the top already."""

BOOK = ("data", "train", "train.checkpoint", "pretrain", "contrastive", "translation", "teacher_forcing", "metrics")
"""What `attn_book` has for a project that trains one of our models."""


def modules() -> Iterator[ModuleType]:
    """The package, its folders that gather their public names, and its single modules."""
    package = importlib.import_module("attn_core")
    yield package
    for path in sorted(module.name for module in pkgutil.iter_modules(package.__path__, "attn_core.")):
        module = importlib.import_module(path)
        if path == "attn_core.mechanisms":
            inner = sorted(one.name for one in pkgutil.iter_modules(module.__path__, f"{path}."))
            yield from (importlib.import_module(name) for name in inner if not name.startswith(LEFT_OUT))
        elif path not in LEFT_OUT:
            yield module
    yield from (importlib.import_module(f"attn_book.{name}") for name in BOOK)


def names(module: ModuleType) -> list[str]:
    """The public functions and classes of a module: those that it lists, or that are its own."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        homes = {name: str(getattr(value, "__module__", "")) for name, value in vars(module).items() if name[0] != "_"}
        listed = [name for name, home in homes.items() if home.startswith(module.__name__)]
    found = {name: getattr(module, name) for name in listed}
    return sorted((name for name, x in found.items() if inspect.isroutine(x) or inspect.isclass(x)), key=str.lower)


def first_sentence(value: object) -> str:
    """The first sentence of a docstring, in Markdown."""
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0]
    return re.sub(r"([*_<])(?=[^`]*(?:`[^`]*`[^`]*)*$)", r"\\\1", sentence.replace("``", "`"))


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    known: set[int] = set()
    for module in modules():
        lines = []
        for name in names(module):
            value = getattr(module, name)
            if id(value) not in known:
                known.add(id(value))
                lines.append(f"- `{name}`: {first_sentence(value)}")
        if lines:
            path = module.__name__.removeprefix("attn_core.")
            parts.append(f"## `{path}`\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
