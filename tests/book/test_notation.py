"""The page of notation is true: the signs stand in the equations that it names, and the names in the package."""

import inspect
import re

import pytest

from attn_core import MultiHeadAttention, attention
from tests.book import notebooks as nb

PAGE = (nb.ROOT / "notation.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "{eq}`" in line]


def equations():
    """Every labelled equation of the chapters, without braces."""
    found = {}
    for path in nb.NOTEBOOKS:
        for cell in nb.read(path)["cells"]:
            for label, body in re.findall(r"```\{math\}\n:label: (\S+)\n(.*?)```", nb.text(cell["source"]), flags=re.S):
                found[label] = re.sub(r"[{}]", " ", body)
    return found


def stands_in(sign, equation):
    """Whether a letter with its index, or any letter of a longer sign, occurs; the index may be another."""
    core = re.sub(r"[{}]", " ", sign)
    base = re.match(r"\\?[A-Za-z]+(?:\^[A-Z])?", core)
    letters = equation if core.startswith("\\") else re.sub(r"\\[A-Za-z]+", " ", equation)
    return bool(base) and base[0] in letters


@pytest.mark.parametrize("row", ROWS)
def test_a_sign_stands_in_an_equation_that_its_row_names(row):
    known = equations()
    bodies = [known[label] for label in re.findall(r"\{eq\}`([^`]+)`", row)]
    signs = [sign for cell in row.strip("| ").split("|")[:1] for sign in re.findall(r"\$([^$]+)\$", cell)]
    assert signs and [sign for sign in signs if not any(stands_in(sign, body) for body in bodies)] == []


def test_the_names_in_code_are_those_of_the_package():
    names = set(inspect.signature(attention).parameters) | set(inspect.signature(MultiHeadAttention).parameters)
    listed = set(re.findall(r"^\| `(\w+)`", PAGE, flags=re.M)) - {"Dv"}
    assert listed == {"mask", "bias", "scale", "causal"} <= names
    assert {"model_dim", "head_dim", "num_heads"} <= names
