"""Real pairs: how they are split into parts, and every way in which the archive can fail to come."""

import contextlib
import hashlib
import io
import os
import struct
import tracemalloc
import zipfile
from types import SimpleNamespace

import pooch
import pytest
import requests

from attn_book import tatoeba
from attn_book.data import Corpus, Pair, tokenize
from attn_book.tatoeba import tatoeba_corpus

REAL = os.environ.get("ATTN_CORE_DATA")
PARTS = ("train", "valid", "test")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    """No archive is named, and the cache is empty."""
    monkeypatch.delenv("ATTN_CORE_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)


# -------------------------------------------------------------------------------------------------- parts

NOUNS = "dog cat cow hen fox owl ant bee rat pig".split()


def made_up():
    """Lines in which most sentences have several translations, on both sides, and some differ in punctuation alone."""
    lines = []
    for number, noun in enumerate(NOUNS * 30):
        lines += [
            f"The {noun} sees {number}.\tVu {number // 2} fois !",
            f"The {noun} sees {number}!\tVoit {number} {noun}.",
        ]
        lines += [f"The {noun} sees {number}.\tL'{noun} en voit {number}."] * 2
    return lines


def zipped(text, name="fra-eng/fra.txt", packing=zipfile.ZIP_DEFLATED, other=("fra-eng/_about.txt", "Made up")):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        # A ZipInfo has a fixed date: with the time of day, workers that collect apart would name tests differently.
        archive.writestr(zipfile.ZipInfo(other[0]), other[1])
        archive.writestr(zipfile.ZipInfo(name), text, packing)
    return content.getvalue()


GOOD = zipped("\n".join(made_up()) + "\n")


@pytest.fixture
def local(monkeypatch, tmp_path):
    """Puts an archive on the disk and names it."""

    def put(content):
        path = tmp_path / "fra-eng.zip"
        path.write_bytes(content)
        monkeypatch.setenv("ATTN_CORE_DATA", str(path))
        return path

    return put


def sentences(pairs):
    """Both sides of the pairs, without punctuation, by means of their own."""
    return [" ".join(filter(lambda w: any(map(str.isalnum, w)), side)) for p in pairs for side in (p.source, p.target)]


def check_parts(found):
    """None of valid and test is anywhere twice, and every pair is whole."""
    held = sentences(found.valid + found.test)
    assert len(set(held)) == len(held)
    assert set(held).isdisjoint(sentences(found.train))
    assert len(set(found.train)) == len(found.train)
    assert isinstance(found, Corpus)
    assert all(isinstance(p, Pair) and p.links == frozenset() for part in PARTS for p in getattr(found, part))


def test_parts_share_no_sentence(local):
    local(GOOD)
    found = tatoeba_corpus(train=400, valid=40, test=50)
    assert [len(getattr(found, part)) for part in PARTS] == [400, 40, 50]
    check_parts(found)
    assert len({p.source for p in found.train}) < 400 > len({p.target for p in found.train})  # several translations
    lines = {tuple(map(tokenize, line.split("\t"))) for line in made_up()}
    assert {(p.source, p.target) for part in PARTS for p in getattr(found, part)} <= lines


def test_the_seed_decides_and_the_size_of_train_changes_nothing_else(local):
    local(GOOD)
    found = tatoeba_corpus(train=300, valid=20, test=30, seed=4)
    assert tatoeba_corpus(train=300, valid=20, test=30, seed=4) == found
    other = tatoeba_corpus(train=300, valid=20, test=30, seed=5)
    assert all(getattr(other, part) != getattr(found, part) for part in PARTS)
    small = tatoeba_corpus(train=100, valid=20, test=30, seed=4)
    assert (small.train, small.valid, small.test) == (found.train[:100], found.valid, found.test)


def test_more_than_the_archive_has(local):
    local(GOOD)
    with pytest.raises(ValueError, match=r"train: expected at most 600.* 600 pairs of at most 5 words.*got 601"):
        tatoeba_corpus(train=601, valid=0, test=0, max_words=5)
    assert len(tatoeba_corpus(train=600, valid=0, test=0, max_words=5).train) == 600
    with pytest.raises(ValueError, match=r"test: expected at most 0.* 0 pairs of at most 4 words.*got 1_?000"):
        tatoeba_corpus(max_words=4)


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: value} for name in ("train", "valid", "test", "seed") for value in (-1, 1.0, True, "1")),
        {"max_words": 0},
    ],
)
def test_wrong_arguments(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"^{name}: expected an integer of .*got {wrong[name]!r}"):
        tatoeba_corpus(**wrong)


# ------------------------------------------------------------------------------------------ local archives


def with_header(archive, at, change):
    """The archive, some bytes after the start of its last entry in the directory changed."""
    place, found = archive.rindex(b"PK\1\2"), bytearray(archive)
    found[place + at : place + at + len(change)] = change
    return bytes(found)


LARGE = zipped(bytes(tatoeba._LARGEST + 1))
BAD = {
    "no archive": b"no archive at all",
    "a changed byte": GOOD[:200] + bytes([GOOD[200] ^ 255]) + GOOD[201:],
    "cut short": GOOD[: len(GOOD) // 2],
    "encrypted": with_header(GOOD, 8, b"\1\0"),
    "LZMA": zipped("a\tb\n", packing=zipfile.ZIP_LZMA),
    "too large": LARGE,
    "more than it claims": with_header(LARGE, 24, struct.pack("<I", 10)),
    "another member": zipped("a\tb\n", name="fra-eng/deu.txt"),
    "a folder of that name": zipped("", name="fra.txt/"),
    "two members": zipped("a\tb\n", other=("fra.txt", "a\tb\n")),
    "no sentences": zipped(""),
    "line 2, a blank side": zipped("a\tb\n \u200b\tb\n"),
    "line 3, no tab": zipped("a\tb\nc\td\nno tab\n"),
    "line 2, another encoding": zipped("a\tb\nc\tété\n".encode("latin-1")),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_archive_is_refused_and_takes_little_memory(local, what):
    path = local(BAD[what])
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="expected .* got ") as caught:
            tatoeba_corpus(train=1, valid=0, test=0)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
    said = str(caught.value)
    assert said.startswith(f"{path}: ") and "Set ATTN_CORE_DATA" in said and len(said) < 400 + len(str(path))
    assert what.partition(",")[0] in said or "line" not in what


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"\xef\xbb\xbfHi you.\tSalut.\r\nGo.\tVa.", {"hi you .": "salut .", "go .": "va ."}),
        ("שלום\t</i>\na\0b\t<eos>\nשלום\t</i>\n", {"שלום": "< / i >", "a \0 b": "< eos >"}),
    ],
    ids=["of Windows", "any text"],
)
def test_odd_lines_are_read(local, content, found):
    local(zipped(content, name="../../fra.txt"))
    read = tatoeba_corpus(train=None, valid=0, test=0).train
    assert {" ".join(pair.source): " ".join(pair.target) for pair in read} == found and len(read) == 2


@pytest.mark.parametrize("name", ["nothing.zip", "."])
def test_no_archive_there(monkeypatch, tmp_path, name):
    monkeypatch.setenv("ATTN_CORE_DATA", str(tmp_path / name))
    with pytest.raises(FileNotFoundError, match=r"ATTN_CORE_DATA=.*expected fra-eng.zip or a folder.*found no .*zip"):
        tatoeba_corpus()


# ----------------------------------------------------------------------------------------------- downloads


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def answers(monkeypatch, *chunks, wrong=None):
    """What the server sends; it may end in an error."""

    def send(chunk_size):
        yield from chunks
        if wrong:
            raise wrong

    answer = SimpleNamespace(raise_for_status=lambda: None, iter_content=send)
    monkeypatch.setattr(requests, "get", lambda *_, **__: contextlib.nullcontext(answer))
    monkeypatch.setattr(tatoeba, "SHA1", hashlib.sha1(GOOD).hexdigest())


def test_downloaded_once_and_the_same_as_a_local_copy(monkeypatch, tmp_path, local, capsys):
    answers(monkeypatch, GOOD)
    found = tatoeba_corpus(train=400, valid=40, test=50)
    answers(monkeypatch, wrong=requests.ConnectionError("the server is gone"))
    assert tatoeba_corpus(train=400, valid=40, test=50) == found and list(files(tmp_path / "cache").values()) == [GOOD]
    assert capsys.readouterr() == ("", "")  # no path of the reader's machine
    local(GOOD)
    assert tatoeba_corpus(train=400, valid=40, test=50) == found


@pytest.mark.parametrize("wrong", [requests.ReadTimeout("500 bytes read"), None])
def test_a_failed_download_leaves_no_file(monkeypatch, tmp_path, wrong):
    answers(monkeypatch, GOOD[:500], wrong=wrong)
    with pytest.raises(ConnectionError if wrong else ValueError, match=str(wrong or tatoeba.SHA1)) as caught:
        tatoeba_corpus()
    assert str(caught.value).startswith(f"{tatoeba.ADDRESS}: ") and "Set ATTN_CORE_DATA" in str(caught.value)
    assert files(tmp_path) == {}


# ---------------------------------------------------------------------------------------- the real archive


@pytest.mark.skipif(not REAL, reason="ATTN_CORE_DATA names no copy of the archive")
def test_the_real_archive(monkeypatch):
    monkeypatch.setenv("ATTN_CORE_DATA", REAL)
    found = tatoeba_corpus()
    assert [len(getattr(found, part)) for part in PARTS] == [20_000, 1_000, 1_000]
    check_parts(found)
    assert max(len(side) for part in PARTS for p in getattr(found, part) for side in (p.source, p.target)) <= 12
    assert tatoeba_corpus(train=10) == Corpus(found.train[:10], found.valid, found.test)
