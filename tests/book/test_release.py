"""A release: a zip that unpacks to the site, the same each time, a wheel that has all files, and true checksums."""

import hashlib
import importlib.util
import zipfile

import pytest

from tests.book.built_site import ROOT


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
