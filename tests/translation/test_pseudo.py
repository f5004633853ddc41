"""A made-up language, in which every message is in brackets: `make test-translation`. Nothing is left in English."""

import gettext
import json
import re

import pytest
from bs4 import BeautifulSoup

from tests.book.built_site import ROOT

LOCALE = ROOT / "_build" / "locale" / "xx" / "LC_MESSAGES"
SITE = ROOT / "_build" / "xx" / "_build" / "html"
# What the theme makes by itself has no article of ours.
PAGES = sorted(
    p for p in SITE.rglob("*.html") if "_static" not in p.parts and p.stem not in ("search", "genindex", "404")
)
NAMES = {"BibTeX", "Binder", "Colab", "Ctrl", "Ctrl+K", "CC BY 4.0", ".ipynb", ".md", ".pdf"}
# Code, what it printed, formulas without words, papers; widgets have tests of their own, in the browser.
NOT_PROSE = "pre, code, script, style, .math, .attn-static, .headerlink, .citation, [lang=en]"
INLINE = {"em", "strong", "a", "span", "b", "i", "sup", "sub", "text", "tspan"}
# Said by Sphinx and sphinx-exercise, which have catalogues of their own.
OTHERS = re.compile(r"^(?:(?:Solution to )?Exercise|Fig\.|Table) [\d.]+")
each = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(SITE).as_posix())


def left_behind(html):
    """The blocks of a page with a word that is not in brackets."""
    page = BeautifulSoup(html, "lxml")
    article = page.find("article", class_="bd-article") or page.find("main")
    for tag in article.select(NOT_PROSE):
        if tag.name != "div" or not re.search(r"\[::|\\text\{[^}]*[a-z]{2}", tag.get_text()):
            tag.decompose()
    found = {}
    for text in article.find_all(string=re.compile(r"[^\W\d_]{2,}|::")):
        block = text.parent
        while block.name in INLINE:
            block = block.parent
        whole = " ".join(block.get_text().split())
        bare = re.sub(r"⟦.*⟧|\\(?:begin|end)\{split\}", "", OTHERS.sub("", whole), flags=re.S)
        if re.search(r"[^\W\d_]{2,}|::", bare):
            found[whole] = None
    return list(found)


def around(html):
    """What a page says beside its article, and the labels within it."""
    page = BeautifulSoup(html, "lxml")
    for tag in page.select(".bd-article a, .attn-static, code, script, style, [lang=en]"):
        tag.decompose()
    said = [tag.get(name, "") for tag in page.find_all(True) for name in ("aria-label", "title", "placeholder")]
    for tag in page.select("article"):
        tag.decompose()
    said += [tag.get_text() for tag in page.select("a, p, title, h1, h2, span") if not tag.find(["p", "span"])]
    return [" ".join(text.split()) for text in said if re.search(r"[^\W\d_]{2,}", text)]


def catalogue(name):
    with (LOCALE / f"{name}.mo").open("rb") as file:
        return gettext.GNUTranslations(file)._catalog


def test_the_site_is_built():
    assert len(PAGES) > 15, "make test-translation"


@each
def test_no_sentence_is_left_behind(path):
    assert left_behind(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", [*PAGES, SITE / "search.html", SITE / "genindex.html"], ids=lambda path: path.stem)
def test_nothing_around_it_is_left_behind(path):
    assert {text for text in around(path.read_text(encoding="utf-8")) if not {"⟦", "⟧"} & set(text)} <= NAMES


def test_the_index_and_the_glossary_have_terms_in_both_languages():
    for name, terms in (("genindex.html", ".indextable .term"), ("reference/glossary.html", "dl.glossary dt")):
        page = BeautifulSoup((SITE / name).read_text(encoding="utf-8"), "lxml")
        terms = [" ".join(term.get_text().split()).strip("#") for term in page.select(terms) if "term" in str(term)]
        assert len(terms) > 150 and not [text for text in terms if not re.fullmatch(r"⟦(.*)⟧ \(?\1\)?", text)]


@each
def test_pictures_are_described_in_the_other_language(path):
    page = BeautifulSoup(path.read_text(encoding="utf-8"), "lxml")
    drawings = [image for image in page.select("article img") if not image.find_parent(class_="attn-static")]
    assert [str(image)[:120] for image in drawings if not image["alt"].startswith("⟦")] == []


@each
def test_widgets_find_their_words_before_they_run(path):
    page = BeautifulSoup(path.read_text(encoding="utf-8"), "lxml")
    (words,) = page.select('head script[src*="words.js"]')
    assert not words.has_attr("defer") and not words.has_attr("async")


def test_the_words_of_the_widgets_are_those_of_the_catalogue():
    text = (SITE / "_static" / "words.js").read_text(encoding="utf-8")
    words = json.loads(text.removeprefix("globalThis.attentionBookWords = ").removesuffix(";\n"))
    assert words == {key: value for key, value in catalogue("widgets").items() if key} and len(words) > 400
    assert all(value == f"⟦{key}⟧" for key, value in words.items())


def test_drawings_have_their_words_in_the_other_language():
    drawings = {p.name for p in (ROOT / "chapters" / "figures").glob("*.svg")}
    shown = [p for p in (SITE / "_images").glob("*.svg") if p.name in drawings]
    words = [
        w for p in shown for w in re.findall(r"<text\b[^>]*>([^<]*[^\W\d_]{2,}[^<]*)</text>", p.read_text("utf-8"))
    ]
    assert len(shown) > 10 and words and all(word.startswith("⟦") for word in words)


@pytest.mark.parametrize(
    "html, left",
    [
        ("<p>⟦All <em>of</em> it.⟧</p><pre>code</pre><p>1.2 ⟦Title⟧</p>", []),
        (r"<div class='math'>\text{out}</div><div class='math'>\sum</div>", [r"\text{out}"]),
        (r"<div class='math'>\[::\]</div>", [r"\[::\]"]),
        ("<p>⟦One⟧ and more</p>", ["⟦One⟧ and more"]),
        ("<table><tr><td>cell</td></tr></table>", ["cell"]),
        ("<p class='admonition-title'>Exercise 1.2 (⟦A bump⟧)</p>", []),
    ],
)
def test_what_is_left_behind_is_found(html, left):
    assert left_behind(f"<article class='bd-article'>{html}</article>") == left
