"""What a student's code uses ready-made, from the book or from PyTorch, though the assignment's own code does not."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from nbformat import NotebookNode

from exercises.submission import is_answer, parsed

MAGIC = ("run_line_magic", "run_cell_magic")  # what IPython makes of %timeit x, x? and %%time: x is code, too
BOOK = ("attn_core", "attn_book")
READY = {
    *("scaled_dot_product_attention", "flex_attention", "MultiheadAttention", "multi_head_attention_forward"),
    *("Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer", "autograd", "backward"),
}


def borrowed(cells: list[NotebookNode], released: NotebookNode) -> list[str]:
    """Names of the book, and of what PyTorch has ready, that the cells use and the released notebook does not.

    They may be right to: a task forbids what it forbids, and a person decides.
    """
    ours = {cell.source for cell in released.cells if not is_answer(cell)}
    allowed = _used(cell.source for cell in released.cells if cell.cell_type == "code")
    return sorted(
        _used(cell.source for cell in cells if cell.cell_type == "code" and cell.source not in ours) - allowed
    )


def _used(sources: Iterable[str]) -> set[str]:
    waiting = list(sources)
    found: set[str] = set()
    while waiting:
        for node in ast.walk(parsed(waiting.pop())):
            found.update(_names(node))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MAGIC:
                waiting += [
                    str(part.value)
                    for part in node.args
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
    return found


def _dotted(node: ast.AST) -> str:
    """The names of ``a.b.c``, however many there are."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id if isinstance(node, ast.Name) else "…", *reversed(names)])


def _names(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.split(".")[0] in BOOK)
        yield from (alias.name for alias in node.names if alias.name.split(".")[-1] in READY)
    elif isinstance(node, ast.ImportFrom):
        of_book = (node.module or "").split(".")[0] in BOOK
        yield from (
            f"{node.module}.{alias.name}" if of_book else alias.name
            for alias in node.names
            if of_book or alias.name in READY
        )
    elif isinstance(node, ast.Attribute) and node.attr in READY:
        yield node.attr
    elif isinstance(node, ast.Attribute) and node.attr == "answer":
        yield _dotted(node)  # a check's right answer
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in READY | set(BOOK):
        yield node.value  # for importlib and getattr
