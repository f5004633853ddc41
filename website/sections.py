"""The index of the site's search: every section of the book with its title and its prose, for js/search.js.

It holds no tables, only the names of the code, and none of the answers that a page keeps folded. Of it there are two
copies, of which a reader loads one: compressed as it is where the site is served, and within a script where it is
opened from a disk.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
import zlib
from collections import Counter
from pathlib import Path

from bs4 import BeautifulSoup, Tag
from sphinx.application import Sphinx

MOST = 199_000  # bytes that a search may fetch
# What is tried until the index is small enough: the longest paragraph, and how many sections must have a word before it
# is left out of what was cut and of the names of code.
SIZES = [(100_000, 20), (300, 20), (300, 10), (200, 10), (100, 3), (100, 1), (60, 1)]
LEFT_OUT = {"genindex", "reference/references"}
# These hold no tags of their own kind, and parsing them would take most of the time.
NO_PROSE = re.compile(r"<(script|style|svg|pre|table)\b.*?</\1>", re.DOTALL)
CODE = re.compile(r'<div class="highlight-ipython3.*?<pre>(.*?)</pre>', re.DOTALL)
NAME = re.compile(r'<span class="n[cfn]?">([\w.]{3,})</span>')
UNSAID = (
    ".attn-static, .dropdown, .exercise, .solution, .toggle, .headerlink, .predict > .admonition-title, form, summary"
)
BLOCKS = ["p", "li", "dd", "figcaption"]
# As js/search.js has them: Chinese has no blanks, and its words are pairs of characters, and the last character alone.
HAN = "\u3400-\u9fff"
ROOT = re.compile(r"√|square roots?|平方根")
WORD = re.compile(rf"(?=([{HAN}]{{1,2}}))[{HAN}]|([^\W_{HAN}]+)")
TWICE = re.compile(rf"([{HAN}]) \1")
PART_OF_WORD = re.compile(rf"[^\s{HAN}]*$")
FORMULA = re.compile(r"\\\((.*?)\\\)|\\\[(.*?)\\\]", re.DOTALL)
SIGNS = {"cdot": "·", "times": "×", "le": "≤", "ge": "≥", "approx": "≈", "in": "∈", "to": "→", "top": "ᵀ", "sum": "Σ"}
SIGNS |= {"infty": "∞", "ne": "≠", "pm": "±", "dots": "…", "sqrt": "√", "lVert": "‖", "rVert": "‖", "odot": "⊙"}
ALSO = re.compile(r"(?:[Aa]lso (?:called|spelled)|[Ss]hort for|也称|又称|也叫|简称|英文：)\s*([^.;。；\n]+)")


def plain_formula(tex: str) -> str:
    """A short formula as text; three dots for one that text cannot say."""

    def named(found: re.Match[str]) -> str:
        name = found[1]
        try:
            return SIGNS.get(name) or unicodedata.lookup(
                f"GREEK {'SMALL' if name.islower() else 'CAPITAL'} LETTER {name}"
            )
        except KeyError:
            return name if name in ("log", "exp", "max", "min", "tanh", "softmax") else ""

    tex = re.sub(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2", tex)
    text = re.sub(r"\\([a-zA-Z]+)\s*", named, tex)
    text = re.sub(r"\\[,;!: ]|[{}$]|&", " ", text).replace("_ ", "_").replace("^ ", "^")
    text = " ".join(text.split()).replace("√ ", "√")
    return "…" if "\\" in text or len(text) > 40 else text


def _text(tag: Tag) -> str:
    return " ".join(tag.get_text().split())


def sections_of(html: str) -> list[list[str]]:
    """The sections of a page: the name of its place, its title, its paragraphs as lines, the names of its code.

    The page's own comes first. A term of the glossary is a section too.
    """
    html = html[html.find("<article") : html.find("</article>")]
    html = CODE.sub(lambda found: f"<code-names>{' '.join(NAME.findall(found[1]))}</code-names>", html)
    html = NO_PROSE.sub(" ", html)
    html = FORMULA.sub(lambda found: plain_formula(found[1]) if found[1] else "…", html)
    page = BeautifulSoup(html, "html.parser")
    titles = {tag: _text(title) for tag in page.select(".exercise") if (title := tag.select_one(".admonition-title"))}
    for tag in page.select(UNSAID):
        tag.replace_with(page.new_tag("p", string=titles[tag]) if tag in titles else "")
    found: dict[Tag, list[str]] = {}
    for block in page.find_all(["h1", "h2", "h3", "h4", "dt", "code-names", *BLOCKS]):
        section = block.find_parent("section")
        if block.name in ("h1", "h2", "h3", "h4") and section:
            found[section] = ["" if not found else str(section.get("id", "")), _text(block), "", ""]
        elif block.name == "dt" and block.get("id"):
            english = block.find(lang="en")
            said = f"英文：{_text(english.extract())}" if english else ""
            found[block] = [str(block["id"]), _text(block), said, ""]
        elif block.name == "code-names":
            if section in found:
                found[section][3] += f" {_text(block)}"
        elif block.name in BLOCKS and not block.find(BLOCKS):
            definition = block.find_parent("dd") if block.name != "dd" else block
            term = definition.find_previous_sibling("dt") if definition else None
            held = found.get(term) if term in found else found.get(section)  # type: ignore[arg-type]
            if held and (text := _text(block)):
                held[2] += f"\n{text}" if held[2] else text
    return list(found.values())


def names_of(terms: list[list[str]]) -> list[list[str]]:
    """Names for the same thing, out of the glossary: a term, and what it is also called."""
    groups = []
    for _, term, text, _ in terms:
        others = [
            re.sub(r"^(for|an?|the) ", "", name.strip(" ,，"))
            for said in ALSO.findall(text)
            for name in re.split(r",? or |, |、|或|[()（）]", re.split(r" where | after | in \[", said)[0])
        ]
        if others:
            groups.append([term, *filter(None, others)])
    return groups


def words_of(text: str) -> list[str]:
    """The words of a text, in small letters."""
    return [pair or word for pair, word in WORD.findall(ROOT.sub(" sqrt ", text.lower()))]


def shortened(text: str, longest: int) -> tuple[str, str]:
    """The paragraphs of a section, none longer than this, and what is cut from them. No word is cut in half."""
    lines, ends = [], []
    for line in text.split("\n"):
        if len(line) > longest:
            kept = PART_OF_WORD.sub("", line[:longest])
            ends.append(line[max(0, len(kept) - 1) :])  # the last character of Chinese and the next may be a word
            line = f"{kept.rstrip()} …"
        lines.append(line)
    return "\n".join(lines), " ".join(ends)


def packed(pages: list[tuple[str, list[list[str]]]], names: list[list[str]]) -> bytes:
    """The index, compressed. Where a section's paragraphs are cut, its last field has the words that it lost."""
    for longest, often in SIZES:
        cut = []
        for address, sections in pages:
            parts = [(place, title, *shortened(text, longest), code) for place, title, text, code in sections]
            cut.append((address, [[place, title, text, f"{ends} {code}"] for place, title, text, ends, code in parts]))
        whole = [section for _, sections in cut for section in sections]
        held = [set(words_of(f"{title} {text}")) for _, title, text, _ in whole]
        counts = Counter(word for words in held for word in words)
        for section, words in zip(whole, held, strict=True):
            new = [word for word in dict.fromkeys(words_of(section[3])) if word not in words and counts[word] < often]
            counts.update(new)
            section[3] = TWICE.sub(r"\1", " ".join(new))
        text = json.dumps({"pages": cut, "names": names}, ensure_ascii=False, separators=(",", ":"))
        index = zlib.compress(text.encode("gb18030"), 9)  # in which a Chinese character has two bytes, not three
        if len(index) <= MOST:
            return index
    raise ValueError(f"pages: expected an index of at most {MOST:,} bytes, got {len(index):,}, whatever is cut")


def write_index(app: Sphinx, exception: Exception | None) -> None:
    """Write the index beside the pages, those that this build found unchanged among them."""
    if exception is not None or app.builder.name != "html":
        return
    site, pages, names = Path(app.outdir), [], []
    for name in sorted(app.env.found_docs - LEFT_OUT):
        address = app.builder.get_target_uri(name)
        sections = sections_of((site / address).read_text(encoding="utf-8"))
        pages.append((address, sections))
        if name == "reference/glossary":
            names = names_of(sections)
    index = packed(pages, names)
    (site / "_static" / "sections.bin").write_bytes(index)
    script = f'globalThis.attentionBookSections = "{base64.b64encode(index).decode()}";\n'
    (site / "_static" / "sections.js").write_text(script, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
