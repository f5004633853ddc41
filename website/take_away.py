"""What a reader takes away: how to cite the book, and where its files are; and the letters above the glossary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parent.parent
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FILES = "<!-- files -->"  # where release.py says which files there are: they are made from the built site
PLACE = "download-and-cite"  # a section of the first page


def citations(record: dict[str, Any]) -> dict[str, str]:
    """What CITATION.cff says, in the style of the APA and as an entry of BibTeX."""
    authors = [author["name"] for author in record["authors"]]
    title, version, url, year = record["title"], record["version"], record["url"], str(record["date-released"])[:4]
    fields = {
        "author": " and ".join(f"{{{name}}}" for name in authors),
        "title": f"{{{title}}}",
        "year": year,
        "version": version,
        "url": url,
    }
    entry = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return {
        "APA": f"{', & '.join(authors)}. ({year}). {title} (Version {version}). {url}",
        "BibTeX": f"@misc{{{title.lower().replace(' ', '-')},\n{entry}}}",
    }


class Citations(SphinxDirective):
    """How to cite the book: two blocks, which have a button to copy them."""

    def run(self) -> Sequence[nodes.Node]:
        """Both blocks, each after the name of its style."""
        self.env.note_dependency(str(ROOT / "CITATION.cff"))
        record = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
        made: list[nodes.Node] = []
        for style, text in citations(record).items():
            block = nodes.literal_block(text, text, language="bibtex" if style == "BibTeX" else "text")
            made += [nodes.container("", nodes.rubric("", style), block, classes=["citation", "this-book"])]
        return made


class Files(SphinxDirective):
    """A line before the book's files, which shows when there are some."""

    has_content = True

    def run(self) -> Sequence[nodes.Node]:
        """The line, and the place of the files."""
        line = nodes.container(classes=["book-files"])
        self.state.nested_parse(self.content, self.content_offset, line)
        line[-1] += [nodes.Text(" "), nodes.raw("", FILES, format="html")]
        return [line]


def letters(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put a bar of letters above a glossary, each a link to its first term."""
    for glossary in list(doctree.findall(nodes.definition_list)):
        if "glossary" not in glossary["classes"]:
            continue
        first: dict[str, str] = {}
        for term in glossary.findall(nodes.term):
            name = term["ids"][0]  # which stays when the term is translated
            first.setdefault(term.get("letter", name.removeprefix("term-")[0]).upper(), name)
        links = [
            f'<a href="#{first[letter]}">{letter}</a>' if letter in first else f"<span>{letter}</span>"
            for letter in LETTERS
        ]
        bar = nodes.raw("", f'<nav class="letters" aria-label="A–Z">{"".join(links)}</nav>', format="html")
        glossary.parent.insert(glossary.parent.index(glossary), bar)


def offer(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Lead from each page's menu of downloads to the first page's section of them."""
    for group in context.get("header_buttons", []):
        if group["label"] == "download-buttons":
            first = context["pathto"](app.config.root_doc).rstrip("#")
            entry = {"type": "link", "url": f"{first}#{PLACE}", "text": "BibTeX", "icon": "fas fa-file"}
            group["buttons"].append({**entry, "label": "take-away-button"})


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("citations", Citations)
    app.add_directive("book-files", Files)
    app.connect("doctree-resolved", letters)
    app.connect("html-page-context", offer, priority=600)  # after the theme has made its menu
    return {"parallel_read_safe": True, "parallel_write_safe": True}
