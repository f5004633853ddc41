"""What of a student's code is taken ready-made."""

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from exercises.borrowed import borrowed
from tests.exercises.course import ASSIGNMENTS, KIT, source

OURS = "import torch\nimport torch.nn.functional as F\nfrom attn_book import check"


def found(code):
    return borrowed([new_code_cell(OURS), new_code_cell(code)], new_notebook(cells=[new_code_cell(OURS)]))


@pytest.mark.parametrize(
    "code, names",
    [
        ("from attn_core import attention", ["attn_core.attention"]),
        ("import attn_core.mechanisms as m", ["attn_core.mechanisms"]),
        ("def f(q):\n    return F.scaled_dot_product_attention(q, q, q)", ["scaled_dot_product_attention"]),
        ("from torch.nn import MultiheadAttention as M", ["MultiheadAttention"]),
        ("check.attention.answer(1)", ["check.attention.answer"]),
        ("torch.autograd.grad(a, b)\nloss.backward()", ["autograd", "backward"]),
        ("%matplotlib inline\n__import__('attn_core')", ["attn_core"]),
        ("getattr(F, 'scaled_dot_product_attention')", ["scaled_dot_product_attention"]),
        ("from attn_book import check\ncheck.attention.usual(f)\nx = 'attention'", []),
        ("def broken(:", []),
        ("torch.nn.functional.scaled_dot_product_attention?", ["scaled_dot_product_attention"]),
        ("%timeit loss.backward()", ["backward"]),
        ("%%time\n%%capture\nloss.backward()", ["backward"]),
        ("x = 0x" + "f" * 20_000 + "\na" + ".b" * 900 + ".c", []),
        ("-" * 90_000 + "1", []),
    ],
)
def test_ready_made_names_are_found(code, names):
    assert found(code) == names


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_our_own_solutions_borrow_nothing(name):
    notebook = source(KIT, name)
    released = new_notebook(cells=[cell for cell in notebook.cells if not cell.metadata.nbgrader.solution])
    assert borrowed(notebook.cells, released) == []
