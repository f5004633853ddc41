"""Packs a release: the site as a zip that opens from disk, the wheel, PDF, EPUB, and their checksums."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import attn_core

ROOT = Path(__file__).resolve().parent.parent
NAME = f"attention-book-{attn_core.__version__}"
# Of use on a host alone.
HOST = {"404.html", "sitemap.xml", ".buildinfo", ".built", ".nojekyll"}
# Where take_away.py leaves room for what is made from the built site: a line of the first page, and each page's menu.
FILES = "<!-- files -->"
ENTRY = '<span class="btn__text-container">BibTeX</span>'
FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # a zip keeps dates, and the same site is to give the same zip


def pack(folder: Path, target: Path) -> None:
    """Write a site into a zip in which all lies in one folder, named as the zip is; the same files, the same bytes.

    What is of use on a host alone is left out.

    Raises:
        FileNotFoundError: there is no index.html in it.
    """
    if not (folder / "index.html").is_file():
        raise FileNotFoundError(f"{folder}: expected a built site, got no index.html")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in HOST):
            entry = zipfile.ZipInfo(f"{target.stem}/{path.relative_to(folder).as_posix()}", FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())


def wheel(folder: Path) -> None:
    """Build the wheel of both packages into a folder, from a copy: building leaves files beside its source."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "source"
        copy.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        for package in ("attn_core", "attn_book"):
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--no-build-isolation", "--wheel-dir", str(folder), str(copy)], check=True)


def offer(site: Path, files: Sequence[Path]) -> None:
    """Put files into a site, links to them on its first page, and their kinds into the menu of each page."""
    links = []
    for path in files:
        shutil.copy(path, site)
        kind, size = path.suffix[1:].upper(), path.stat().st_size / 10**6
        links.append(f'<a href="{path.name}" download>{kind} ({size:.0f} MB)</a>')
    kinds = ", ".join(path.suffix[1:].upper() for path in files)
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        offered = text.replace(FILES, " · ".join(links)).replace(ENTRY, ENTRY.replace(">", f">{kinds}, ", 1))
        if offered != text:
            page.write_text(offered, encoding="utf-8")


def checksums(folder: Path) -> str:
    """A line for each file of a folder, as `sha256sum --check` reads it."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def main() -> int:
    """Write everything into _build/release, which is made anew, and the book's files into the site."""
    folder = ROOT / "_build" / "release"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wheel(folder)
    pack(ROOT / "_build" / "html", folder / f"{NAME}.zip")
    files = [ROOT / "_build" / f"{NAME}.{kind}" for kind in ("pdf", "epub")]
    for path in files:
        shutil.copy(path, folder)
    offer(ROOT / "_build" / "html", files)  # which the zip, packed before, does not repeat
    (folder / "SHA256SUMS").write_text(checksums(folder), encoding="utf-8")
    for path in sorted(folder.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
