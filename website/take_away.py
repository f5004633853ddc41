"""What a reader takes away: how to cite the book, and where its files are; the letters above the glossary; and what
the index says of its links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx import addnodes
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


def number_index(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Let the index say where its links lead: a name to its definition, others to the section that they name."""
    if pagename != "genindex" or "genindexentries" not in context:
        return
    pages = {app.builder.get_target_uri(name): name for name in app.env.found_docs}
    places: dict[str, dict[str, str]] = {}

    def numbered(name: str) -> dict[str, str]:
        found: dict[str, str] = {}
        numbers = app.env.toc_secnumbers.get(name, {})
        for section in app.env.get_doctree(name).findall(nodes.section):  # those within come later, and count
            place = next((f"#{one}" for one in section["ids"] if f"#{one}" in numbers), "")
            said = ".".join(map(str, numbers.get(place, ()))) or app.env.titles[name].astext()
            found |= {one: said for part in section.findall(nodes.Element) for one in part.get("ids", ())}
            for entry in section.findall(addnodes.index):
                found |= {target: said for _, _, target, _, _ in entry["entries"]}
        return found

    def said(uri: str) -> str:
        page, _, place = uri.partition("#")
        name = pages[page]
        if name not in places:
            places[name] = numbered(name)
        return places[name].get(place) or app.env.titles[name].astext()

    def told(links: list[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
        first = {said(uri): uri for _, uri in reversed(links)}
        home = next((uri for _, uri in links if uri.startswith(glossary)), "")
        return home, [
            (first[name], name) for name in dict.fromkeys(said(uri) for _, uri in links) if first[name] != home
        ]

    glossary = app.builder.get_target_uri("reference/glossary")

    context["letters"] = LETTERS
    context["genindexentries"] = [
        (key, [(name, told(links), [(one, told(more)) for one, more in parts]) for name, (links, parts, _) in entries])
        for key, entries in context["genindexentries"]
    ]


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
    app.connect("html-page-context", number_index)
    app.connect("html-page-context", offer, priority=600)  # after the theme has made its menu
    return {"parallel_read_safe": True, "parallel_write_safe": True}
