"""The errata page: every claim has a place to read on and a cell that would fail if the claim held."""

import re

import pytest

from tests.book import notebooks as nb

PAGE = nb.ROOT / "chapters" / "errata.ipynb"
CELLS = nb.read(PAGE)["cells"]
CLAIMS = [i for i, cell in enumerate(CELLS) if re.search(r"^### “|^### \"", nb.text(cell["source"]), flags=re.M)]
KNOWN = 43  # claims of the notes that this book grew from; what was found since comes on top


def title(i):
    return re.search(r"^### (.*)$", nb.text(CELLS[i]["source"]), flags=re.M)[1]


def test_no_claim_is_missing_or_told_twice():
    assert len(CLAIMS) >= KNOWN and len({title(i) for i in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("i", CLAIMS, ids=title)
def test_a_claim_is_answered_by_one_cell_and_taught_in_a_chapter(i):
    assert nb.text(CELLS[i]["source"]).count("\n### ") <= 1
    pages = re.findall(r"\]\((\d\d_\w+|\.\./reference/history)\)", nb.text(CELLS[i]["source"]))
    assert pages and all(any((PAGE.parent / f"{page}.{kind}").is_file() for kind in ("ipynb", "md")) for page in pages)
    cell = CELLS[i + 1]
    assert cell["cell_type"] == "code" and cell["outputs"]
    source, _, _ = nb.text(cell["source"]).partition("\nTable(")  # a table may follow
    assert nb.ends_in_assertion(source)
