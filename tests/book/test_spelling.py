"""Every word of the pages and documents is in a dictionary, a public name, or in the book's own list, words.txt."""

import re

import pytest

import attn_core
from tests.book import notebooks as nb
from tests.book.test_numbers import prose

OWN = nb.ROOT / "tests" / "book" / "words.txt"
DOCUMENTS = sorted([*nb.ROOT.glob("*.md"), *(nb.ROOT / folder / "README.md" for folder in ("benchmarks", "recorded"))])
PAGES = [*nb.NOTEBOOKS, *DOCUMENTS]
WORD = re.compile(r"[A-Za-zÀ-ÖØ-öø-ÿœ]+(?:[’'][A-Za-z]+)*")


@pytest.fixture(scope="module")
def dictionary():
    from spellchecker import SpellChecker

    return SpellChecker()


def own_words():
    return OWN.read_text(encoding="utf-8").split()


def public_names():
    """What the package calls its own, as a new mechanism's author does not list it again: ``Linformer``, ``lsh``."""
    modules = (nb.ROOT / "attn_core" / "mechanisms").glob("*.py")
    return {name.lower() for name in [*attn_core.__all__, *(path.stem for path in modules)]}


def words(text):
    """The words of a Markdown text, without code, formulas, addresses and tags."""
    text = re.sub(r"https?://\S+|<[^>]+>", " ", prose(text))
    return {re.sub(r"[’']s$", "", word) for word in WORD.findall(text)}


def words_of(path):
    """The words of a page, captions and alternative texts among them, or of a document."""
    if path.suffix != ".ipynb":
        return words(path.read_text(encoding="utf-8"))
    found = set()
    for cell in nb.read(path)["cells"]:
        texts = [nb.text(cell["source"])] if cell["cell_type"] == "markdown" else []
        texts += re.findall(r"^:alt: (.+)$", texts[0], flags=re.M) if texts else []
        shown = cell["metadata"].get("mystnb", {})
        texts += [
            text for part, key in (("image", "alt"), ("figure", "caption")) if (text := shown.get(part, {}).get(key))
        ]
        found = found.union(*map(words, texts))
    return found


def unknown(found, dictionary, own):
    return sorted(word for word in found if word.lower() not in dictionary and word.lower() not in own)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_word_is_known(path, dictionary):
    assert unknown(words_of(path), dictionary, public_names() | {word.lower() for word in own_words()}) == []


def test_the_own_list_is_sorted_and_holds_only_what_is_used(dictionary):
    used = {word.lower() for path in PAGES for word in words_of(path)}
    assert own_words() == sorted(set(own_words()), key=str.lower)
    known = [word for word in own_words() if word.lower() in dictionary or word.lower() in public_names()]
    assert known == [] and [word for word in own_words() if word.lower() not in used] == []


def test_a_slip_is_found_and_code_is_not_read(dictionary):
    text = "The decoder atttends to `srcs`, see https://example.org/qwrt and $xyzzy$; the model's soupe."
    assert unknown(words(text), dictionary, {"soupe"}) == ["atttends"]
