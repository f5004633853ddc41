"""Real sentence pairs, English and French, from Tatoeba: downloaded once, or read from a copy of the archive.

Source: the Tatoeba project (tatoeba.org, CC-BY 2.0), as prepared by manythings.org/anki.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path, PurePosixPath
from random import Random

from attn_book.data.pairs import Corpus, Pair
from attn_book.data.tokens import INVISIBLE, tokenize
from attn_core.contract import check_integer, shown

ADDRESS = "https://d2l-data.s3-accelerate.amazonaws.com/fra-eng.zip"
SHA1 = "94646ad1522d915e7b0f9296181140edcf86a4f5"
ARCHIVE, MEMBER = "fra-eng.zip", "fra.txt"
VARIABLE = "ATTN_CORE_DATA"
"""The environment variable that names a copy of the archive, or the folder that holds one."""
_LARGEST = 2**27
"""Bytes of sentences at most, several times the true archive's: a small archive can claim to hold any number."""
_ADVICE = f"Set {VARIABLE} to the path of an undamaged copy of {ARCHIVE} to read that one."

_VISIBLE = re.compile(rf"[^\s{INVISIBLE}]")


def tatoeba_corpus(
    *, train: int | None = 20_000, valid: int = 1_000, test: int = 1_000, max_words: int = 12, seed: int = 0
) -> Corpus:
    """Draw so many pairs for each part from the archive, the same for the same seed; ``train=None`` takes the rest.

    The pairs have at most ``max_words`` tokens a side and no links: nobody knows their true alignment. Many
    sentences have several translations, so the parts are kept apart by sentence: none of ``valid`` or ``test``, English
    or French, occurs twice there or at all in ``train``, not even with other punctuation. ``train`` may hold
    several translations of a sentence. The size of ``train`` changes no other part, and a smaller one is the beginning
    of a larger one.

    The archive is what ``ATTN_CORE_DATA`` names (a zip file, or a folder that contains fra-eng.zip); where that is not
    set, it is downloaded once, into the user's cache, and checked by its hash at each call.

    Raises:
        ValueError: if a size, ``max_words`` or the seed is not such a number, more pairs are asked for than the archive
            has, the archive is damaged, has other contents or is far too large, or the download has the wrong hash.
        ConnectionError: if the download failed.
        FileNotFoundError: if there is no archive where ``ATTN_CORE_DATA`` says.
    """
    sizes = {"test": test, "valid": valid, "train": train}
    for name, value in {"test": test, "valid": valid, "train": 0 if train is None else train, "seed": seed}.items():
        check_integer(name, value, at_least=0)
    check_integer("max_words", max_words)
    rows = lines()
    Random(zlib.crc32(b"tatoeba") + (seed << 32)).shuffle(rows)
    pairs = _pairs(rows, max_words)
    held: set[str] = set()
    parts: dict[str, tuple[Pair, ...]] = {}
    for name, size in sizes.items():
        chosen: list[Pair] = []
        while len(chosen) != size:
            pair = next(pairs, None)
            if pair is None and size is None:
                break
            if pair is None:
                available = sum(1 for _ in _pairs(rows, max_words))
                raise ValueError(
                    f"{name}: expected at most {len(chosen)}, all that is left of the archive's {available} pairs "
                    f"of at most {max_words} words a side, got {size}"
                )
            sentences = _key(pair.source), _key(pair.target)
            if held.isdisjoint(sentences):
                chosen.append(pair)
                if name != "train":
                    held.update(sentences)
        parts[name] = tuple(chosen)
    return Corpus(**parts)


def lines() -> list[tuple[str, str]]:
    """Every line of the archive, English and French, as it stands there; raises as ``tatoeba_corpus``."""
    return _read(_archive())


def _pairs(rows: Sequence[tuple[str, str]], max_words: int) -> Iterator[Pair]:
    """The distinct short pairs; lazily, because most callers want a few of many."""
    seen = set()
    for english, french in rows:
        pair = tokenize(english), tokenize(french)
        if max(map(len, pair)) <= max_words and pair not in seen:
            seen.add(pair)
            yield Pair(*pair)


def _key(words: tuple[str, ...]) -> str:
    """The sentence without its punctuation marks."""
    return " ".join(word for word in words if word[0].isalnum() or word[-1].isalnum())


def _archive() -> Path:
    """The path of the archive, downloaded where no local one is named."""
    local = os.environ.get(VARIABLE)
    if not local:
        return _download(ADDRESS, SHA1)
    path = Path(os.path.expanduser(local))
    if path.is_dir():
        path /= ARCHIVE
    if not path.is_file():
        raise FileNotFoundError(f"{VARIABLE}={local}: expected {ARCHIVE} or a folder that holds it, found no {path}")
    return path


def _download(address: str, sha1: str) -> Path:
    """The path of the cached archive, downloaded if it is not there or no longer whole.

    Pooch checks the hash of a temporary file and only then moves it to its place: a failure leaves the cache as it was.
    """
    import pooch
    from requests import RequestException

    folder, logger = pooch.os_cache("attn_core"), pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # it would print a path of the reader's machine
    try:
        return Path(pooch.retrieve(address, f"sha1:{sha1}", fname=ARCHIVE, path=folder, downloader=_fetch))
    except RequestException as error:
        raise ConnectionError(f"{address}: expected {ARCHIVE}, got no usable answer: {error}. {_ADVICE}") from error
    except ValueError as error:
        raise ValueError(f"{address}: {error} {_ADVICE}") from error
    finally:
        logger.setLevel(level)


def _fetch(address: str, path: str, _: object) -> None:
    """Download to a path; pooch's own downloader leaves the connection open when something goes wrong."""
    import requests

    with requests.get(address, stream=True, timeout=30) as response, open(path, "wb") as file:
        response.raise_for_status()
        for chunk in response.iter_content(chunk_size=1 << 16):
            file.write(chunk)


def _read(path: Path) -> list[tuple[str, str]]:
    """The English and the French side of each line, in the archive's order."""
    content = BytesIO(path.read_bytes())
    size, data = 0, b""
    try:
        with zipfile.ZipFile(content) as archive:
            names = archive.namelist()
            members = [n for n in names if PurePosixPath(n).name == MEMBER and not n.endswith("/")]
            if len(members) == 1:
                member = archive.getinfo(members[0])
                size = member.file_size
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"{MEMBER} is packed in another way than by deflate")  # no other has a bound
                if size <= _LARGEST:
                    with archive.open(members[0]) as file:
                        data = file.read(size + 1)  # not more than that is unpacked, whatever lies there
    except Exception as error:  # on damage, zipfile raises BadZipFile, zlib.error, EOFError, OSError and yet others
        raise ValueError(f"{path}: expected a zip archive, got a damaged one or none: {error}. {_ADVICE}") from error
    if len(members) != 1:
        raise ValueError(f"{path}: expected one member {MEMBER}, got {shown(names)}. {_ADVICE}")
    if size > _LARGEST:
        raise ValueError(f"{path}: expected at most {_LARGEST:,} bytes in {members[0]:.80}, got {size:,}. {_ADVICE}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        wrong = data[error.start : error.end]
        raise ValueError(f"{path}: {members[0]}, line {line}: expected UTF-8, got {wrong!r}. {_ADVICE}") from error
    pairs = []
    for number, row in enumerate(text.removesuffix("\n").split("\n"), start=1):
        sides = row.split("\t")
        if len(sides) < 2 or not (_VISIBLE.search(sides[0]) and _VISIBLE.search(sides[1])):
            raise ValueError(
                f"{path}: {members[0]}, line {number}: expected an English sentence, a tab and a French sentence, "
                f"got {shown(row)}. {_ADVICE}"
            )
        pairs.append((sides[0], sides[1]))
    return pairs
