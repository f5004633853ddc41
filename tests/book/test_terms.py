"""Every term of the glossary is linked in the chapters that use it; no page uses a word that has a better one."""

import re

import pytest

from tests.book import notebooks as nb
from tests.book.test_numbers import prose

TERMS = re.findall(r"^(\S.*)\n  ", (nb.ROOT / "glossary.md").read_text(encoding="utf-8"), flags=re.M)
CHAPTERS = [path for path in nb.NOTEBOOKS if path.stem[:2].isdigit()]
# Words of everyday use, and those that every chapter rests on: linked where they are introduced.
EVERYDAY = set(
    "ablation alignment connector decoder encoder entropy gate head intervention kernel key mask padding patch query "
    "rank register score softmax state temperature tile token Transformer value vocabulary warp".split()
) | {"attention weight", "hidden state"}
# The same words in another sense.
OTHERWISE = {
    "13_sparse": {"global attention", "local attention"},
    "17_context": {"context vector", "global token"},
    "20_pictures": {"soft attention"},
}
# What the book writes in the place of each; the British spelling among them.
INSTEAD = {
    "two-way": "bidirectional", "one-way": "unidirectional", "thousand million": "billion", "by lot": "at random",
    "in earnest": "in practice", "dearer": "more expensive", "kept back": "held out", "word numbers": "token IDs",
    "waits for memory": "is memory-bound", "behavior": "behaviour", "color": "colour", "neighbor": "neighbour",
}  # fmt: skip
AMERICAN = r"\w*(?:normaliz|optimiz|generaliz|recogniz|analyz)\w*"


def pages_text(path):
    return "\n".join(nb.text(cell["source"]) for cell in nb.read(path)["cells"] if cell["cell_type"] == "markdown")


def not_linked(text, terms):
    """The terms that stand in a Markdown text outside of headings and tables, and are linked nowhere in it."""
    read = prose(re.sub(r"^[#|].*$|\[[^]]*\]\([^)]*\)", "", text, flags=re.M))
    return [
        term
        for term in terms
        if re.search(rf"(?<![\w-]){re.escape(term)}s?(?![\w-])", read, flags=re.I)
        and not re.search(rf"\{{term\}}`(?:[^`<]*<)?{re.escape(term)}>?`", text, flags=re.I)
    ]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_links_each_term_that_it_uses(path):
    terms = [term for term in TERMS if term not in EVERYDAY | OTHERWISE.get(path.stem, set())]
    assert not_linked(pages_text(path), terms) == []


@pytest.mark.parametrize("path", nb.NOTEBOOKS, ids=lambda path: path.stem)
def test_one_idea_has_one_name(path):
    read = prose(pages_text(path))
    assert {word: name for word, name in INSTEAD.items() if re.search(rf"\b{word}", read, flags=re.I)} == {}
    assert re.findall(AMERICAN, read, flags=re.I) == []


def test_what_is_a_use():
    text = "# Beam search\nA *KV cache* and `beam search`; a {term}`prefill`. Long prefills, [the roofline](x)."
    assert not_linked(text, ["beam search", "KV cache", "prefill", "roofline"]) == ["KV cache"]
