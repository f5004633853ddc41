"""What the tests of the site share: the built pages, parsed once, and the repository's address."""

from __future__ import annotations

import functools
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"

# Links in a page's head that a browser follows by itself; "canonical", "next" and the like it only reads.
FETCHED = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "manifest"}


def pages() -> list[str]:
    """Every built page, as a path under the site's root; templates that the theme brings are no pages."""
    return sorted(p.relative_to(HTML).as_posix() for p in HTML.rglob("*.html") if "_static" not in p.parts)


def chapters() -> list[str]:
    """The built pages that come from notebooks."""
    return [page for page in pages() if (ROOT / page).with_suffix(".ipynb").exists()]


@functools.cache
def parsed(page: str) -> BeautifulSoup:
    return BeautifulSoup((HTML / page).read_text(encoding="utf-8"), "lxml")


@functools.cache
def anchors(page: str) -> frozenset[str]:
    """The names that a link to a place in this page may use."""
    tags = parsed(page).find_all(True)
    return frozenset(str(tag[key]) for tag in tags for key in ("id", "name") if tag.get(key))


@functools.cache
def settings() -> dict:
    return yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))


def repository() -> str:
    """The one address of the repository."""
    return settings()["repository"]["url"]


def is_elsewhere(address: str) -> bool:
    """Whether a browser would leave the site's own files for this address."""
    parts = urlsplit(address.strip())
    return bool(parts.netloc) or parts.scheme not in ("", "data", "blob")


def fetched(page: BeautifulSoup) -> list[tuple[Tag, str]]:
    """What a browser fetches by itself when it opens a page: (tag, address)."""
    found: list[tuple[Tag, str]] = []
    for tag in page.find_all(True):
        if tag.name == "link":
            if FETCHED & {str(rel).lower() for rel in tag.get("rel") or []}:
                found.append((tag, str(tag.get("href", ""))))
            sets = [str(tag.get("imagesrcset", ""))]
        else:
            keys = ("src", "data", "poster") if tag.name != "meta" else ()
            found += [(tag, str(tag[key])) for key in keys if tag.get(key)]
            if tag.name in ("use", "image", "feimage"):
                found += [(tag, str(tag[key])) for key in ("href", "xlink:href") if tag.get(key)]
            sets = [str(tag.get("srcset", ""))]
        # A srcset is a list of "address size"; an embedded picture has a comma of its own.
        found += [
            (tag, part.split()[0]) for s in sets if not s.startswith("data:") for part in s.split(",") if part.split()
        ]
    return found


@functools.cache
def base() -> str:
    """The site's path on its host: an address in 404.html, which is shown at any depth, begins with it."""
    return settings()["sphinx"]["config"]["notfound_urls_prefix"]


def target(page: str, address: str) -> tuple[Path, str]:
    """The file of the site, and the place in it, that a local address in a page points at."""
    parts = urlsplit(address)
    start = (HTML / page).parent if parts.path else HTML / page
    if parts.path.startswith(base()):
        start, parts = HTML, parts._replace(path="./" + parts.path.removeprefix(base()))
    path = (start / unquote(parts.path)).resolve() if parts.path else start
    return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)
