"""The book's Sphinx extension: drops scripts that pages do not use, demands alt text, enters terms
into the index, writes the sitemap, builds the first page's translator, lets models come after the text."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)

SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"

# What Sphinx and MyST-NB write into a page, and what a screen reader needs there instead.
MENDED = {
    # ARIA has withdrawn the role, and the list that Sphinx puts around the entries may hold list items only.
    'role="doc-biblioentry"': 'role="listitem"',
    # The label hides what the line says itself: "Show the code".
    '<summary aria-label="Toggle hidden content">': "<summary>",
}
# A formula is one piece to a browser, which may break the line after it: a comma would begin the next.
FORMULA = r'<span class="math notranslate nohighlight">[^<]*</span>'
PUNCTUATED = re.compile(rf"([(“‘]+{FORMULA}[^\s\w<(&]*|{FORMULA}[^\s\w<(&]+)")
DISPLAYED = re.compile(
    r'<div class="math notranslate nohighlight"([^>]*>\s*(?:<span class="eqno">.*?</span>)?\s*\\\[(.*?)\\\]</div>)',
    re.DOTALL,
)
TALL = re.compile(r"\\(?:d?frac|sum|prod|int|under|over|max_|min_)")
# Brackets that sphinx-exercise puts around a title, beside Chinese.
TITLED = re.compile(r'(<p class="admonition-title">.*?[\d.]+)(?: ?(</span>))? \((.*?)\)((?:</a>)?</p>)')
PICTURE = re.compile(r'<img (?![^>]*\swidth=)(?=[^>]*src="[^"]*_images/([^"/]+)")')
SVG = re.compile(r'<svg\b[^>]*viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"[^>]*>')

CODE = re.compile(r'(<div class="cell_input.*?<pre>(?:<span></span>)?)(.*?)(</pre>)', re.DOTALL)
# A stored widget's key, its state, and where its script begins.
STORED = re.compile(
    r'<div class="(attn-static [^>]*data-attn-id="(\w+)".*?<script type="application/json">)(.*?)'
    r'(</script>\n<script type=")module(?=">)',
    re.DOTALL,
)
LARGE = 100_000  # bytes of a compressed state: a model's weights, which come after the text
MODEL = """{
  const [state, script] = document.querySelectorAll("[data-attn-id='%s'] > script");
  state.text = %s;
  script.replaceWith(Object.assign(document.createElement("script"), { type: "module", text: script.text }));
}
"""
# What css/icons.css draws itself: a third of the theme's style.
ICON = re.compile(r'(?:\.fa-[\w-]+:+before,?)+\{content:"[^"]*"\}')
# Colours and components of sphinx-design that no page has: almost half of its style.
NOT_HERE = re.compile(
    r"[^{}@]*(?:-(?:secondary|success|info|warning|danger|light|muted|dark|black|white)\b"
    r"|\.sd-(?:animate|aside|avatar|badge|cards-carousel|dropdown|fs|g[xy]-|material|octicon|p[trblxy]?-|step|summary|tab))"
    r"[^{}]*\{[^{}]*\}"
)


def _is_unused(script: Any) -> bool:
    """Whether a script serves live kernels only: Thebe's (which names a CDN even when off) and widget state."""
    attributes = getattr(script, "attributes", {}) or {}
    body = attributes.get("body") or ""
    name = str(getattr(script, "filename", "") or "")
    return "THEBE_JS_URL" in body or "thebe" in name or attributes.get("type") == WIDGET_STATE


def _is_mathjax(script: Any) -> bool:
    """Whether a script is MathJax, or its settings."""
    body = (getattr(script, "attributes", {}) or {}).get("body") or ""
    return "mathjax" in str(getattr(script, "filename", "") or "") or "MathJax" in body


def drop_unused_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Remove from a page the scripts that only a live kernel would use, and MathJax where there is no formula.

    Sphinx asks whether a page or any page that it lists has formulas, and so would load MathJax on the first page.
    """
    formulas = app.builder.name != "html" or app.env.get_domain("math").data["has_equations"].get(pagename, False)
    context["script_files"] = [
        script for script in context["script_files"] if not _is_unused(script) and (formulas or not _is_mathjax(script))
    ]


def name_folded_pages(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Name each fold of the sidebar after the page whose parts it holds; the theme gives it an arrow and no name."""
    plain = context["generate_toctree_html"]

    def named(*arguments: Any, **settings: Any) -> Any:
        found = plain(*arguments, **settings)
        for summary in found.select("details > summary") if hasattr(found, "select") else ():
            link = summary.find_parent("li").find("a")
            summary["aria-label"] = link.get_text(" ", strip=True)
        return found

    context["generate_toctree_html"] = named


def mend_for_screen_readers(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Replace in a page's body the markup that misleads screen readers (see MENDED), and Latin brackets in Chinese."""
    for wrong, right in MENDED.items():
        context["body"] = context.get("body", "").replace(wrong, right)
    if app.config.language.startswith("zh"):
        context["body"] = TITLED.sub(r"\1\2（\3）\4", context["body"])


def size_of(picture: Path) -> str:
    """A drawing's width and height as attributes, with which it may come late; nothing for other kinds of pictures."""
    drawn = SVG.search(picture.read_text(encoding="utf-8")) if picture.suffix == ".svg" else None
    if drawn is None:
        return ""
    width, height = (float(size) * (4 / 3 if 'pt"' in drawn[0] else 1) for size in drawn.groups())
    return f'loading="lazy" width="{width:.0f}" height="{height:.0f}" '


def hanging(code: re.Match[str]) -> str:
    """A cell's code in lines that know how far they are indented: what does not fit goes on further in."""
    lines = code[2].removesuffix("\n").split("\n")
    indents = [len(text) - len(text.lstrip(" ")) for text in (re.sub("<[^>]*>", "", line) for line in lines)]
    said = (f'<span class="line" style="--in: {n}">{line}\n</span>' for n, line in zip(indents, lines, strict=True))
    return code[1] + "".join(said) + code[3]


def keep_in_place(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Let a page's text stay where it is: a drawing has its room before it comes, a comma its formula."""
    sources = {name: Path(app.srcdir, source) for source, name in getattr(app.builder, "images", {}).items()}

    def sized(image: re.Match[str]) -> str:
        return f"<img {size_of(sources[image[1]])}" if image[1] in sources else image[0]

    def roomy(formula: re.Match[str]) -> str:
        lines = re.split(r"\\\\|\\cr", formula[2])
        rows = sum(1.8 if TALL.search(line) else 1 for line in lines)
        return f'<div style="--rows: {rows:.1f}" class="math notranslate nohighlight"{formula[1]}'

    context["body"] = DISPLAYED.sub(roomy, context.get("body", ""))
    body = PUNCTUATED.sub(r'<span class="unbroken">\1</span>', context.get("body", ""))
    context["body"] = CODE.sub(hanging, PICTURE.sub(sized, body))


def let_models_come_later(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Put each large state of a widget into a script of its own, which starts the widget.

    js/later.js loads it when the widget is near. The first page is the translator's, so it asks for its script at once.
    """

    def apart(found: re.Match[str]) -> str:
        before, key, state, after = found.groups()
        if len(zlib.compress(state.encode())) < LARGE:
            return found[0]
        file = Path(app.outdir, "_static", "models", f"{key}.js")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MODEL % (key, json.dumps(state)), encoding="utf-8")
        address = context["pathto"](f"_static/models/{key}.js", 1)
        kind = re.search(r'"kind":"(\w+)"', state)
        host = f'<div data-attn-model="{address}" class="later-{kind[1] if kind else "other"} {before}{after}text/plain'
        is_first = pagename == app.config.root_doc
        return f'<script defer fetchpriority="low" src="{address}"></script>\n{host}' if is_first else host

    if app.builder.name == "html":  # one page, to be printed, keeps them
        context["body"] = STORED.sub(apart, context.get("body", ""))


def drop_unused_styles(app: Sphinx, exception: Exception | None) -> None:
    """Take out of two styles the signs of a font that no page loads, and what no page has."""
    for name, unused in (("styles/pydata-sphinx-theme.css", ICON), ("sphinx-design.min.css", NOT_HERE)):
        style = Path(app.outdir, "_static", name)
        if exception is None and style.is_file():
            style.write_text(unused.sub("", style.read_text(encoding="utf-8")), encoding="utf-8")


def escape_titles(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Escape the titles that the theme writes into a page as they are: one with <unk> in it would lose the word."""
    for name in ("pagetitle", "root_title"):
        context[name] = escape(context.get(name, ""))


def write_sitemap(app: Sphinx, exception: Exception | None) -> None:
    """List every page of the book for search engines, those that this build found unchanged among them."""
    if exception is None and app.builder.name == "html":
        pages = sorted(app.config.html_baseurl + app.builder.get_target_uri(name) for name in app.env.found_docs)
        entries = "".join(f"<url><loc>{escape(page)}</loc></url>\n" for page in pages)
        text = f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="{SITEMAP}">\n{entries}</urlset>\n'
        (Path(app.outdir) / "sitemap.xml").write_text(text, encoding="utf-8")


def warn_without_alt(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Warn, and so fail the build, where an image has no alternative text."""
    for image in doctree.findall(nodes.image):
        if not str(image.get("alt", "")).strip():
            logger.warning(
                "image %s has no alt text: give the figure :alt:, or the code cell's metadata mystnb.image.alt",
                image.get("uri", ""),
                location=image if image.line else docname,
            )


def complete_single_page(app: Sphinx) -> None:
    """Let the builder of one single page write every kind of node that the site's builder can.

    Sphinx looks for handlers under "html" only where nothing is under "singlehtml", and an extension puts a few there.
    """
    handlers = app.registry.translation_handlers
    handlers["singlehtml"] = {**handlers.get("html", {}), **handlers.get("singlehtml", {})}


class IndexTerms(SphinxTransform):
    """Enters into the book's index where each page first links a term of the glossary."""

    default_priority = 8  # before Sphinx takes what is to be translated, index entries among them

    def apply(self, **kwargs: Any) -> None:
        """Put an entry before the first link to each term."""
        # In the glossary each term has its entry, and its place, already.
        met = {term.astext() for term in self.document.findall(nodes.term)}
        for link in list(self.document.findall(addnodes.pending_xref)):
            term = link.get("reftarget", "")
            if link.get("reftype") != "term" or term in met:
                continue
            met.add(term)
            place = f"term-{nodes.make_id(term)}"
            entry = addnodes.index(entries=[("single", term, place, "", None)])
            parent, at = link.parent, link.parent.index(link)
            parent.remove(link)
            parent.insert(at, [entry, nodes.inline("", "", link, ids=[place])])


class RecordedTranslator(SphinxDirective):
    """A live translator from its exported weights: their path is the argument, its caption the body."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> Sequence[nodes.Node]:
        """Put the translator and its caption into a container that is named after the directive."""
        from attn_book.widgets import Translator  # a page without a translator should not wait for torch

        relative, absolute = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        try:
            translator = Translator.load(absolute)
        except (OSError, ValueError) as error:
            raise self.error(f"recorded translator {relative}: {error}") from error
        translator.writes = True
        widget = nodes.raw("", str(translator.static_html()), format="html")
        caption = nodes.container(classes=["recorded-caption"])
        self.state.nested_parse(self.content, self.content_offset, caption)
        return [nodes.container("", widget, caption, classes=[self.name])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("recorded-translator", RecordedTranslator)
    app.add_transform(IndexTerms)
    app.connect("builder-inited", complete_single_page)
    app.connect("html-page-context", drop_unused_scripts, priority=900)
    app.connect("html-page-context", escape_titles, priority=900)
    app.connect("html-page-context", mend_for_screen_readers)
    app.connect("html-page-context", keep_in_place)
    app.connect("html-page-context", let_models_come_later)
    app.connect("html-page-context", name_folded_pages, priority=900)
    app.connect("doctree-resolved", warn_without_alt)
    app.connect("build-finished", write_sitemap)
    app.connect("build-finished", drop_unused_styles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
