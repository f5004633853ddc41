"""Packs the built site into an EPUB: its pages, formulas as MathML, folds as folds, each widget as its picture."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import sys
import time
import uuid
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import escape, quoteattr

import yaml
from bs4 import BeautifulSoup, Comment, Tag

import attn_core
from website.pdf import chromium

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"
TARGET = ROOT / "_build" / f"attention-book-{attn_core.__version__}.epub"
STYLE = ROOT / "website" / "epub.css"
MEDIA = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg", ".css": "text/css"}
# What is of use only on the site, and what a reading system would refuse.
LEFT_OUT = "script, style, form, button, .headerlink, .letters, .book-files, .sd-btn, p.expanded, .only-dark"
NO_ATTRIBUTE = {"loading", "tabindex", "align", "valign", "border", "frame", "rules", "cellpadding", "cellspacing"}
# In a drawing by Matplotlib: a type that names another host, and spaces, which are paths without a line.
FOREIGN = re.compile(rb"<!DOCTYPE[^>]*>|<metadata>.*?</metadata>", re.DOTALL)
NO_LINE = re.compile(rb"<path(?![^>]*\sd=)")
FORMULAS = """async (formulas) => {
  await MathJax.startup.promise;
  return formulas.map(([tex, display]) => MathJax.tex2mml(tex, { display }));
}"""
PAGE = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="{language}"
  xml:lang="{language}"><head><title>{title}</title><link rel="stylesheet" href="{up}epub.css"/></head>
<body>{body}</body></html>
"""
CONTAINER = """<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="book/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>
"""
COVER = """<!doctype html><meta charset="utf-8"><style>
body { display: flex; flex-direction: column; justify-content: center; box-sizing: border-box; height: 100vh;
  margin: 0; padding: 0 90px; background: #f4f1fb; color: #171b22;
  font-family: system-ui, "Noto Sans", "Liberation Sans", sans-serif; }
svg { width: 260px; height: 260px; margin-bottom: 90px; }
h1 { margin: 0; font-size: 96px; line-height: 1.1; letter-spacing: -0.02em; }
p { margin: 60px 0 0; font-size: 34px; line-height: 1.4; color: #48566b; }
</style>"""


class Book:
    """The built site, page after page: what goes into the EPUB."""

    def __init__(self, site: Path) -> None:
        """Read the list of pages from the first page's sidebar.

        Raises:
            FileNotFoundError: there is no index.html.
        """
        self.site = site
        first = self.parsed("index.html")
        self.home = str(first.select("link[rel=canonical]")[0]["href"]).removesuffix("index.html")
        self.language = str(first.html["lang"]) if first.html else "en"
        self.title = _text(first.select_one("h1"))
        self.lead = _text(first.select_one(".lead"))
        self.parts: list[tuple[str, list[str]]] = [("", ["index.html"])]
        for tag in first.select("nav.bd-links .caption, nav.bd-links a[href$='.html']"):
            if tag.name == "a":
                self.parts[-1][1].append(str(tag["href"]))
            else:
                self.parts.append((_text(tag), []))
        self.pages = [page for _, pages in self.parts for page in pages]
        self.formulas: dict[tuple[str, bool], int] = {}
        self.pictures: dict[str, bytes] = {}

    def parsed(self, page: str) -> BeautifulSoup:
        """A page of the site."""
        return BeautifulSoup((self.site / page).read_text(encoding="utf-8"), "lxml")

    def address(self, page: str, link: str) -> str:
        """Where a link of a page leads in the EPUB: to another of its pages, or to the site."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or not parts.path:
            return link
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path)))
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        if target in self.pages:
            return f"{parts.path.removesuffix('.html')}.xhtml{fragment}"
        return f"{self.home}{target}{fragment}"

    def article(self, page: str) -> Tag:
        """A page's text without what needs a script."""
        parsed = self.parsed(page)
        article = parsed.article
        assert article is not None, page
        for comment in article.find_all(string=lambda text: isinstance(text, Comment)):
            comment.extract()
        for widget in article.select(".attn-static"):
            widget.replace_with(self._picture(parsed, page, widget))
        for tag in article.select(LEFT_OUT):
            tag.decompose()
        for box in article.select(".admonition.dropdown"):
            title = box.select_one(".admonition-title")
            box.name = "details"
            if title:
                title.name = "summary"
                for link in title.select("a"):
                    link.unwrap()
        for fold in article.select("details > summary"):
            fold.string = _text(fold)
        for formula in article.select(".math"):
            self._mark(formula)
        met: set[str] = set()  # the directive of exercises gives every one of them the same
        for tag in article.find_all(True):
            for name in [name for name in tag.attrs if name in NO_ATTRIBUTE or name.startswith("data-")]:
                del tag[name]
            if tag.get("id") in met:
                del tag["id"]
            met.add(str(tag.get("id")))
            if tag.name == "a" and tag.get("href"):
                tag["href"] = self.address(page, str(tag["href"]))
            if tag.name == "img":
                tag["src"] = self.picture(page, str(tag["src"]))
        return article

    def picture(self, page: str, source: str) -> str:
        """Put a picture of a page into the book, and say where it lies."""
        if source.startswith("data:"):
            data = base64.b64decode(source.partition(",")[2])
            path = f"_images/{hashlib.sha256(data).hexdigest()[:16]}.png"
        else:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(source)))
            data = (self.site / path).read_bytes()
        self.pictures[path] = NO_LINE.sub(b'<path d="M0 0"', FOREIGN.sub(b"", data)) if path.endswith(".svg") else data
        return posixpath.relpath(path, posixpath.dirname(page) or ".")

    def _picture(self, parsed: BeautifulSoup, page: str, widget: Tag) -> Tag:
        """What stands for a widget: its picture, which leads to the widget on the site."""
        picture = widget.select_one("img.attn-picture")
        assert picture is not None, page
        place = widget.find_previous(id=True)
        figure = parsed.new_tag("div", attrs={"class": "widget"})
        link = parsed.new_tag("a", href=f"{self.home}{page}#{place['id'] if place else ''}")
        link.append(picture.extract())
        link.append(parsed.new_tag("br"))
        link.append(f"▶ {self.home.removeprefix('https://')}{page}")
        figure.append(link)
        return figure

    def _mark(self, formula: Tag) -> None:
        """Put a mark where a formula is; the formulas are translated together."""
        number = formula.select_one(".eqno")
        if number is not None:
            number.extract()
        shown = formula.name == "div"
        tex = formula.get_text().strip()
        tex = tex.removeprefix("\\[" if shown else "\\(").removesuffix("\\]" if shown else "\\)").strip()
        at = self.formulas.setdefault((tex, shown), len(self.formulas))
        formula.string = f"\ue000{at}\ue001"
        if number is not None:
            formula.append(number)


def _text(tag: Tag | None) -> str:
    """The text of an element, without the sign that links to it, on one line."""
    if tag is None:
        return ""
    for sign in tag.select(".headerlink"):
        sign.decompose()
    return " ".join(tag.get_text().split())


def drawn(book: Book) -> tuple[list[str], bytes]:
    """The book's formulas as MathML, and its cover, by the browser that prints the PDF and the site's own MathJax.

    Raises:
        FileNotFoundError: there is no Chromium.
    """
    from playwright.sync_api import sync_playwright

    logo = (ROOT / "website" / "logo.svg").read_text(encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        sheet = browser.new_context(offline=True, viewport={"width": 1000, "height": 1500}).new_page()
        sheet.set_content(f"{COVER}{logo}<h1>{escape(book.title)}</h1><p>{escape(book.lead)}</p>")
        cover = sheet.screenshot(type="jpeg", quality=85)
        sheet.goto(next((book.site / page).as_uri() for page in book.pages if _has_formulas(book.site / page)))
        made = sheet.evaluate(FORMULAS, [list(formula) for formula in book.formulas])
        browser.close()
    return made, cover


def _has_formulas(page: Path) -> bool:
    return "mathjax/startup.js" in page.read_text(encoding="utf-8")


def mathml(made: str, tex: str) -> str:
    """A formula as a reading system takes it: on one line, with its source for those that cannot show it."""
    plain = re.sub(r">\s+<", "><", re.sub(r' (?:data-[\w-]+|class)="[^"]*"', "", made.strip()))
    return plain.replace("<math ", f"<math alttext={quoteattr(' '.join(tex.split()))} ", 1)


def page_of(title: str, body: str, language: str, depth: int = 0) -> str:
    """A whole page."""
    return PAGE.format(title=escape(title), body=body, language=language, up="../" * depth)


def contents(book: Book, articles: dict[str, Tag]) -> str:
    """The table of contents: parts, pages, and the sections of each."""

    def entry(page: str) -> str:
        address, article = page.replace(".html", ".xhtml"), articles[page]
        inner = "".join(
            f'<li><a href="{address}#{section["id"]}">{escape(_text(section.h2))}</a></li>'
            for section in article.select("section[id]:has(> h2)")
        )
        return f'<li><a href="{address}">{escape(_text(article.h1))}</a>{f"<ol>{inner}</ol>" if inner else ""}</li>'

    listed = ""
    for caption, pages in book.parts:
        entries = "".join(map(entry, pages))
        listed += f"<li><span>{escape(caption)}</span><ol>{entries}</ol></li>" if caption else entries
    return f'<nav epub:type="toc" id="toc"><h1>{escape(book.title)}</h1><ol>{listed}</ol></nav>'


def package(book: Book, record: dict[str, Any], items: list[str], modified: float) -> str:
    """The list of what is in the book, and what is said of it."""
    identifier = uuid.uuid5(uuid.NAMESPACE_URL, f"{book.home}{record['version']}/{book.language}")
    said = {
        "schema:accessMode": ["textual", "visual"],
        "schema:accessModeSufficient": ["textual,visual"],
        "schema:accessibilityFeature": ["MathML", "alternativeText", "structuralNavigation", "tableOfContents"],
        "schema:accessibilityHazard": ["none"],
    }
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(modified))
    metas = "".join(f'<meta property="{name}">{value}</meta>' for name, values in said.items() for value in values)
    authors = "".join(f"<dc:creator>{escape(author['name'])}</dc:creator>" for author in record["authors"])
    spine = "".join(f'<itemref idref="p{at}"/>' for at in range(len(book.pages)))
    return f"""<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">urn:uuid:{identifier}</dc:identifier>
<dc:title>{escape(book.title)}</dc:title><dc:language>{book.language}</dc:language>{authors}
<dc:rights>CC BY 4.0</dc:rights><meta property="dcterms:modified">{stamp}</meta>{metas}</metadata>
<manifest>{"".join(items)}</manifest><spine><itemref idref="cover"/>{spine}</spine></package>
"""


def pack(site: Path, target: Path) -> None:
    """Write the EPUB of a built site.

    Raises:
        FileNotFoundError: there is no site, or no Chromium.
    """
    record = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    book = Book(site)
    articles = {page: book.article(page) for page in book.pages}
    made, cover = drawn(book)
    formulas = [mathml(text, tex) for text, (tex, _) in zip(made, book.formulas, strict=True)]
    colours = (site / "_static" / "pygments.css").read_text(encoding="utf-8")
    light = re.findall(r'^html\[data-theme="light"\] (.*)$', colours, re.MULTILINE)
    alt = quoteattr(book.title)
    files: dict[str, str | bytes] = {
        "epub.css": STYLE.read_text(encoding="utf-8") + "\n".join(light) + "\n",
        "nav.xhtml": page_of(book.title, contents(book, articles), book.language),
        "cover.xhtml": page_of(book.title, f"<img class='cover' src='cover.jpg' alt={alt}/>", book.language),
        "cover.jpg": cover,
    }
    ids = {"nav.xhtml": "nav", "cover.xhtml": "cover"}
    properties = {"nav.xhtml": "nav", "cover.jpg": "cover-image"}
    for at, (page, article) in enumerate(articles.items()):
        article.name = "main"
        body = re.sub("\ue000(\\d+)\ue001", lambda found: formulas[int(found[1])], article.decode(formatter="minimal"))
        name = page.replace(".html", ".xhtml")
        files[name] = page_of(_text(article.h1), body, book.language, page.count("/"))
        ids[name] = f"p{at}"
        if "<math " in body:
            properties[name] = "mathml"
    files |= dict(sorted(book.pictures.items()))
    items = []
    for at, name in enumerate(files):
        kind = MEDIA.get(Path(name).suffix, "application/xhtml+xml")
        more = f' properties="{properties[name]}"' if name in properties else ""
        items.append(f'<item id="{ids.get(name, f"f{at}")}" href="{name}" media-type="{kind}"{more}/>')
    files["content.opf"] = package(book, record, items, (site / "index.html").stat().st_mtime)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": CONTAINER,
            **{f"book/{name}": data for name, data in files.items()},
        }.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED)


def main(arguments: Sequence[str]) -> int:
    """Pack the site, or the one that is named."""
    site, target = map(Path, arguments) if arguments else (SITE, TARGET)
    try:
        pack(site, target)
    except FileNotFoundError as error:
        print(f"make: {error}", file=sys.stderr)
        return 1
    print(f"The book for readers of EPUB: {target}, {target.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
