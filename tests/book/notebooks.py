"""What the tests of the notebooks share."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "chapters").glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def text(value: str | list[str]) -> str:
    """A notebook stores text whole or in lines."""
    return value if isinstance(value, str) else "".join(value)


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def python_blocks(markdown: Path) -> list[str]:
    """The blocks of Python of a Markdown file, without their fences."""
    return re.findall(r"^```python\n(.*?)\n```$", markdown.read_text(encoding="utf-8"), flags=re.M | re.S)


def launch_cell() -> str:
    """The cell that every notebook begins with: the first chapter's."""
    return text(code_cells(read(NOTEBOOKS[0]))[0]["source"])


def ends_in_assertion(source: str) -> bool:
    """Whether the last statement is an assertion, or a call that asserts, or a block that ends in one."""
    body = ast.parse(re.sub(r"^\s*[%!].*$", "pass", source, flags=re.M)).body
    while body:
        last = body[-1]
        if isinstance(last, ast.Assert):
            return True
        if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
            name = last.value.func
            return "assert" in (name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", ""))
        if not isinstance(last, ast.For | ast.With):
            return False
        body = last.body
    return False


def is_progress(line: str) -> bool:
    """Whether a line of stderr is a progress bar, or the blanks that one leaves behind."""
    line = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).strip()
    return not line or bool(re.search(r"\d+%\|.*\||\d+it \[|\| *\d+/\d+ \[", line))
