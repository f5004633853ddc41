"""Results side by side, as a small table on a page and as aligned text in a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

# A number with its sign, spread and a unit of one short word.
_NUMBER = re.compile(r"[-−+≈<>]? ?\d[\d.,]*(e[-−+]?\d+)?( ?± ?\d[\d.,]*)?( ?[×%]| [^\W\d]{1,5}(/s)?)?")


class Table:
    """A table of results: the last line of a notebook cell shows it, and ``str`` gives it as text.

    ``columns`` has a heading for each column, and ``rows`` a cell for each of them. A cell is shown as ``str`` gives
    it, so whoever makes the table rounds its numbers. Columns of numbers are aligned to the right.

    Raises:
        ValueError: if a row does not have one cell for each column.
    """

    def __init__(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        self.columns = [str(name) for name in columns]
        self.rows = [[str(cell) for cell in row] for row in rows]
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"rows: expected {len(self.columns)} cells {self.columns}, got {len(row)}: {row}")

    def _is_numeric(self, column: int) -> bool:
        cells = [row[column] for row in self.rows if row[column].strip(" –")]
        return bool(cells) and all(_NUMBER.fullmatch(cell.strip()) for cell in cells)

    def __str__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        right = [self._is_numeric(i) for i in range(len(self.columns))]

        def aligned(line: list[str]) -> str:
            cells = zip(line, widths, right, strict=True)
            return "  ".join(cell.rjust(width) if r else cell.ljust(width) for cell, width, r in cells).rstrip()

        return "\n".join([aligned(self.columns), "  ".join("─" * width for width in widths), *map(aligned, self.rows)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        sides = ["right" if self._is_numeric(i) else "left" for i in range(len(self.columns))]

        def line(tag: str, cells: list[str]) -> str:
            pairs = zip(cells, sides, strict=True)
            return "".join(f'<{tag} style="text-align: {side}">{escape(cell)}</{tag}>' for cell, side in pairs)

        body = "\n".join(f"<tr>{line('td', row)}</tr>" for row in self.rows)
        head = f"<thead>\n<tr>{line('th', self.columns)}</tr>\n</thead>"
        return f'<table class="results">\n{head}\n<tbody>\n{body}\n</tbody>\n</table>'
