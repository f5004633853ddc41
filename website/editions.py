"""Puts the editions of the book together: the English site, each other language in a folder of it, and on every page a
link to the same page in the others."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import yaml
from babel import Locale

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
# What the page for unknown addresses cannot know: which page was meant.
LEFT_OUT = {"404.html"}
BUTTONS = '<div class="article-header-buttons">'


def folder_of(language: str) -> str:
    """The folder of a language's edition, an empty name for English: zh for zh_CN."""
    return "" if language == "en" else language.split("_")[0]


def linked(html: str, page: str, language: str, languages: Sequence[str], base: str) -> str:
    """A page with links to what it is in the other languages: for search engines, and in its header for readers.

    website/js/place.js keeps the section.
    """
    known, shown = "", ""
    for other in languages:
        code = other.replace("_", "-")
        address = f"{folder_of(other)}/{page}".lstrip("/")
        known += f'<link rel="alternate" hreflang="{code}" href="{escape(base + address)}" />\n'
        if other != language:
            here = Path("/", folder_of(language), page).parent
            name = Locale.parse(other).get_language_name()
            href = escape(os.path.relpath(f"/{address}", here))
            shown += f'<a class="btn btn-sm book-edition" hreflang="{code}" lang="{code}" href="{href}">{name}</a>\n'
    return html.replace("</head>", f"{known}</head>", 1).replace(BUTTONS, f"{BUTTONS}\n{shown}", 1)


def join(sites: dict[str, Path], target: Path, base: str) -> int:
    """Write the sites of all languages, English first, into one; how many pages have links.

    Raises:
        FileNotFoundError: one of them is not built.
    """
    for site in sites.values():
        if not (site / "index.html").is_file():
            raise FileNotFoundError(f"{site}: expected a built site, got no index.html")
    shutil.rmtree(target, ignore_errors=True)
    for language, site in sites.items():
        shutil.copytree(site, target / folder_of(language), dirs_exist_ok=True)
    count = 0
    for language, site in sites.items():
        for path in sorted(set(site.rglob("*.html")) - {site / name for name in LEFT_OUT}):
            page = path.relative_to(site).as_posix()
            languages = [other for other, its in sites.items() if (its / page).is_file()]
            if len(languages) > 1:
                html = linked(path.read_text(encoding="utf-8"), page, language, languages, base)
                (target / folder_of(language) / page).write_text(html, encoding="utf-8")
                count += 1
    return count


def main(languages: Sequence[str]) -> int:
    """Join English and the languages that are named into _build/editions."""
    sites = {"en": BUILD / "html"} | {language: BUILD / language / "_build" / "html" for language in languages}
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    try:
        count = join(sites, BUILD / "editions", settings["sphinx"]["config"]["html_baseurl"])
    except FileNotFoundError as error:
        print(f"make: {error}", file=sys.stderr)
        return 1
    print(f"The editions, {count} pages: file://{BUILD / 'editions' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
