"""A release: a zip that unpacks to the site, the same each time, a wheel, an EPUB, how to cite it, true checksums."""

import hashlib
import importlib.util
import zipfile
from xml.etree import ElementTree

import pytest

from tests.book.built_site import ROOT
from website import epub, take_away


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("book_release", ROOT / "website" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "html"
    (folder / "chapters").mkdir(parents=True)
    (folder / "index.html").write_text("<title>é</title>", encoding="utf-8")
    (folder / "chapters" / "a.html").write_bytes(b"\x00\xff")
    (folder / ".nojekyll").write_bytes(b"")
    return folder


def test_the_zip_holds_in_one_folder_what_is_of_use_without_a_host(release, site, tmp_path):
    release.pack(site, tmp_path / "book-1.zip")
    with zipfile.ZipFile(tmp_path / "book-1.zip") as archive:
        assert archive.namelist() == ["book-1/chapters/a.html", "book-1/index.html"]
        archive.extractall(tmp_path / "out")
    assert (tmp_path / "out" / "book-1" / "chapters" / "a.html").read_bytes() == b"\x00\xff"


def test_the_wheel_has_all_files_of_the_package(release, tmp_path):
    release.wheel(tmp_path)
    (path,) = tmp_path.iterdir()
    paths = [p for package in ("attn_core", "attn_book") for p in (ROOT / package).rglob("*")]
    files = {p.relative_to(ROOT).as_posix() for p in paths if p.suffix in {".py", ".js", ".css", ".typed"}}
    with zipfile.ZipFile(path) as archive:
        assert files <= set(archive.namelist())
        assert not [name for name in archive.namelist() if name.startswith(("tests", "exercises", "recorded"))]


def test_checksums_are_of_the_files(release, tmp_path):
    (tmp_path / "a.whl").write_bytes(b"wheel")
    (tmp_path / "SHA256SUMS").write_text("old")
    assert release.checksums(tmp_path) == f"{hashlib.sha256(b'wheel').hexdigest()}  a.whl\n"


PAGE = """<html lang=en><link rel=canonical href="https://a.org/index.html"><nav class="bd-links"><a href="b/1.html">
</a></nav><article><section id=s><h1>T</h1><a href="{up}b/1.html#s">in<br></a><a href="{up}b.zip">out</a><script>1 && 2
</script><h2>t</h2><span class=math>\\(x&lt;y\\)</span><p class=attn-static><img class="attn-picture" src="data:,AA==">
</p><div class="admonition dropdown"><p class="admonition-title">S</p>s</div></section></article>"""


def test_an_epub_is_made_of_xml_and_holds_what_it_names(site, tmp_path, monkeypatch):
    for name in ("index.html", "b/1.html", "_static/pygments.css"):
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(PAGE.format(up="../" * name.count("/")), encoding="utf-8")
    monkeypatch.setattr(epub, "drawn", lambda book: (["<math xmlns='m'/>"], b"jpg"))
    epub.pack(site, tmp_path / "b.epub")
    with zipfile.ZipFile(tmp_path / "b.epub") as archive:
        first, *names = archive.namelist()
        assert archive.read(first) == b"application/epub+zip"
        trees = {name: ElementTree.fromstring(archive.read(name)) for name in names if name.endswith(("ml", "opf"))}
    held = {item.get("href") for item in trees["book/content.opf"].iter("{http://www.idpf.org/2007/opf}item")}
    assert {f"book/{name}" for name in held} == {*names} - {"META-INF/container.xml", "book/content.opf"}
    page = ElementTree.tostring(trees["book/b/1.xhtml"], encoding="unicode")
    parts = ("../b/1.xhtml#s", "https://a.org/b.zip", "x&lt;y", "details", "../_images/6e340b9cffb37a98.png")
    assert [part for part in parts if part not in page] == [] and "script" not in page


def test_the_files_are_offered_and_the_book_is_cited(release, tmp_path):
    (site := tmp_path / "site").mkdir()
    (site / "index.html").write_text(f"{release.FILES}|{release.ENTRY}")
    (tmp_path / "b.pdf").write_bytes(bytes(2_560_000))
    release.offer(site, [tmp_path / "b.pdf"])
    link, entry = (site / "index.html").read_text().split("|")
    assert link == '<a href="b.pdf" download>PDF (3 MB)</a>' and ">PDF, BibTeX<" in entry and (site / "b.pdf").exists()
    record = {"authors": [{"name": "N"}], "title": "A B", "version": "1", "url": "u", "date-released": "2026-11-25"}
    assert take_away.citations(record)["APA"] == "N. (2026). A B (Version 1). u"
