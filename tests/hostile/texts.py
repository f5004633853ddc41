"""Hostile text and files: words, scores, pictures and widgets; checkpoints, archives, JSON, and paths to nowhere."""

import functools
import io
import json
import os
import struct
import tempfile
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from attn_book.alignment import alignment_error, diagonal_guess
from attn_book.data import Batches, Pair, Vocab, tokenize
from attn_book.metrics import bleu, exact_match
from attn_book.plots import heatmap, positional_matrix, positional_pair
from attn_book.tatoeba import VARIABLE, tatoeba_corpus
from attn_book.train import checkpoint, fit
from attn_book.train.checkpoint import Checkpoint, load, load_matching, save
from attn_book.widgets import (
    AttentionHeatmap,
    AttentionPatternExplorer,
    KernelSmoother,
    MaskedWordExplorer,
    OnlineSoftmaxStepper,
    PagedCacheExplorer,
    PatchAttentionExplorer,
    PositionalEncodingExplorer,
    Quiz,
    StaticWidget,
    Translator,
)
from attn_book.widgets.base import RefusedError
from attn_book.widgets.exported import export_translator
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from tests.hostile.models import BATCHES, MODEL, PAIRS, RECURRENT, SIZES, VOCAB, WRITER
from tests.hostile.row import Row
from tests.hostile.tensors import NAN, numbers

RUN = "run.safetensors"


def safetensors(header, data=b"", length=None):
    """A file of the format: eight bytes that say how long the header is, the header, the tensors' bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


TENSOR = '{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'


def tensor(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def own(text, **others):
    """A checkpoint of no tensors whose checksum fits, with this text."""
    metadata = {"format": checkpoint.FORMAT, "text": text, "checksum": checkpoint._checksum({}, text)}
    return safetensors({"__metadata__": metadata | others})


def trained(**options):
    """The file that training a fresh model leaves."""
    with tempfile.TemporaryDirectory() as folder:
        encoder = Encoder(7, embed_dim=4, hidden_dim=3)
        model = Seq2Seq(encoder, BahdanauDecoder(7, **SIZES | {"hidden_dim": options.pop("hidden_dim", 6)}))
        settings = {"epochs": 1, "progress": False, "device": "cpu", "checkpoint": f"{folder}/{RUN}"}
        fit(model, options.pop("batches", BATCHES), **settings | options)
        return Path(folder, RUN).read_bytes()


@functools.cache
def whole():
    return trained()


def cut(kib):
    """The file without what comes after so many KiB."""
    assert len(whole()) > 1024 * kib
    return whole()[: 1024 * kib]


def resume(folder, model, name=RUN, **options):
    settings = {"epochs": 1, "progress": False, "device": "cpu", "checkpoint": folder / name}
    fit(model, BATCHES, **settings | options)


def loading(folder, name=RUN, read=load):
    return read(folder / name)


# A row takes a line or two.
# fmt: off
model = {"model": RECURRENT}
damaged = rf"checkpoint: expected a whole checkpoint, got FOLDER/{RUN}: "
broken = damaged + "Error while deserializing: "
another = rf"checkpoint: FOLDER/{RUN} is of another run; "
DEEP = b"[" * 100_000 + b"]" * 100_000

CHECKPOINTS = [
    *(
        Row(f"checkpoint: cut after {kib} KiB", resume, model, damaged, files={RUN: functools.partial(cut, kib)})
        for kib in range(28)  # as many as it has
    ),
    Row("checkpoint: one byte more", resume, model, broken + "incomplete metadata",
        files={RUN: lambda: whole() + b"\0"}),
    Row("checkpoint: another byte at the end", resume, model, damaged + "its checksum does not fit its content$",
        files={RUN: lambda: whole()[:-1] + bytes([whole()[-1] ^ 1])}),
    Row("checkpoint: of another model", resume, model, another, files={RUN: lambda: trained(hidden_dim=8)}, most=600),
    Row("checkpoint: of another rate", resume, model, another + "learning_rate: expected 0.01, got 0.003$",
        files={RUN: lambda: trained(learning_rate=0.01)}),
    Row("checkpoint: of other data", resume, model,
        another + "batches' batch_size: expected 1, got 2; batches' number: expected 2, got 1",
        files={RUN: lambda: trained(batches=Batches(PAIRS, VOCAB, VOCAB, batch_size=1))}),
    Row("checkpoint: of no run", lambda folder: load_matching(folder / RUN, {"epochs": 3}), {},
        another + "epochs: expected nothing, got 3$", files={RUN: own('{"settings": {}, "progress": {}}')}),
    *(
        Row(f"safetensors: {name}", loading, {}, said, files={RUN: content})
        for name, content, said in (
            ("nothing", b"", broken + "header too small"),
            ("seven bytes", bytes(7), broken + "header too small"),
            ("a header beyond the file", safetensors({"a": tensor()}, bytes(4), 10**6),
                broken + "invalid header length"),
            ("a header of 2^63 bytes", safetensors({}, b"", 2**63), broken + "header too large"),
            ("a negative offset", safetensors({"a": tensor(offsets=(-4, 0))}, bytes(4)),
                broken + "invalid JSON in header: invalid value: integer `-4`"),
            ("tensors that overlap", safetensors({"a": tensor(), "b": tensor()}, bytes(4)),
                broken + "invalid offset for tensor"),
            ("bytes of no tensor", safetensors({"a": tensor()}, bytes(8)), broken + "incomplete metadata"),
            ("a dtype that does not exist", safetensors({"a": tensor("F33")}, bytes(4)),
                broken + "invalid JSON in header: unknown variant `F33`"),
            ("a dtype that PyTorch has not", safetensors({"a": tensor("F4", [8])}, bytes(4)), damaged + "'F4'$"),
            ("a shape of 2^80 numbers", safetensors({"a": tensor(shape=[2**40, 2**40])}, bytes(4)),
                broken + "overflow"),
            ("a tensor twice", safetensors(f'{{"a": {TENSOR}, "a": {TENSOR}}}'.encode(), bytes(4)),
                rf"checkpoint: expected a file of format 'attn_core checkpoint 1', got FOLDER/{RUN}: another safet"),
            ("metadata twice", safetensors(b'{"__metadata__": {}, "__metadata__": {}}'),
                broken + "invalid JSON in header: duplicate field"),
            ("no JSON", safetensors(b"learning_rate: 0.1"), broken + "invalid JSON in header"),
            ("a list", safetensors([]), broken + "invalid JSON in header"),
            ("invalid UTF-8", safetensors(b'{"\xff": 1}'), broken + "invalid UTF-8 in header"),
            ("nested 100,000 deep", safetensors(DEEP), broken + "invalid JSON in header"),
            ("metadata nested 100,000 deep", safetensors(b'{"__metadata__": ' + DEEP + b"}"),
                broken + "invalid JSON in header"),
            ("metadata as a list", safetensors({"__metadata__": [1]}), broken + "invalid JSON in header"),
            ("metadata as a number", safetensors({"__metadata__": 3}), broken + "invalid JSON in header"),
            ("no metadata", safetensors({"__metadata__": None}), "checkpoint: expected a file of format"),
            ("a format of 10,000 letters", own("{}", format="x" * 10_000),
                "checkpoint: expected a file of format .*: x{80}$"),
            ("text as a number", safetensors({"__metadata__": {"text": 3}}),
                broken + "invalid JSON in header: invalid type: integer `3`"),
            ("no text", safetensors({"__metadata__": {"format": checkpoint.FORMAT}}),
                damaged + "its checksum does not fit its content$"),
            ("a pickle", b"\x80\x04cos\nsystem\n(S'touch stolen'\ntR.", broken),
        )
    ),
    Row("load: a folder", loading, {"name": "."}, r"\[Errno 21\] Is a directory: 'FOLDER'$", IsADirectoryError, {}),
    Row("load: not there", loading, {"name": "no"}, r"\[Errno 2\] No such file or directory: 'FOLDER/no'$",
        FileNotFoundError, {}),
    Row("load: below a file", loading, {"name": "a/b"}, r"\[Errno 20\] Not a directory: 'FOLDER/a/b'$",
        NotADirectoryError, {"a": b"text"}),
    *(
        Row(f"save: {name}", lambda folder, name, content: save(folder / name, content),
            {"name": path, "content": Checkpoint({"a": numbers(2)}, {}, {})}, said, error, files)
        for name, path, said, error, files in (
            ("onto a folder", "folder", r"\[Errno 21\] Is a directory: 'FOLDER/folder.partial' -> 'FOLDER/folder'$",
                IsADirectoryError, {"folder": None}),
            ("into no folder", "no/a", r"\[Errno 2\] No such file or directory: 'FOLDER/no/a.partial'$",
                FileNotFoundError, {}),
            ("below a file", "a/b", r"\[Errno 20\] Not a directory: 'FOLDER/a/b.partial'$", NotADirectoryError,
                {"a": b"text"}),
        )
    ),
    Row("fit: a checkpoint below a file", resume, model | {"name": "a/b"},
        r"\[Errno 20\] Not a directory: 'FOLDER/a/b.partial'$", NotADirectoryError, {"a": b"text"}),
    Row("fit: a checkpoint in no folder", resume, model | {"name": "no/b"},
        r"\[Errno 2\] No such file or directory: 'FOLDER/no/b.partial'$", FileNotFoundError, {}),
]

ARCHIVE = "fra-eng.zip"
LINES = b"Hi you.\tSalut toi.\nGo on.\tVa donc.\n"


def zipped(content=LINES, *names, deflated=False):
    """An archive with this content under each of the names."""
    with zipfile.ZipFile(
        data := io.BytesIO(), "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    ) as archive:
        for name in names or ("fra.txt",):
            archive.writestr(name, content)
    return data.getvalue()


def with_header(archive, at, change):
    """The archive with the number ``at`` so many bytes after the start of its entry in the directory changed."""
    place, found = archive.index(b"PK\1\2"), bytearray(archive)
    found[place + at : place + at + len(change)] = change
    return bytes(found)


def linked(target):
    """An archive whose member is a symbolic link."""
    with zipfile.ZipFile(data := io.BytesIO(), "w") as archive:
        link = zipfile.ZipInfo("fra.txt")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, target)
    return data.getvalue()


def sentences(folder, name=ARCHIVE):
    """What ``tatoeba_corpus`` makes of the file in the folder."""
    with mock.patch.dict(os.environ, {VARIABLE: str(folder / name)}):
        return tatoeba_corpus(train=None, valid=0, test=0)


LIES = with_header(zipped(b"0" * 2**26, deflated=True), 24, struct.pack("<I", 10))
GOOD = zipped()
spoilt = f"FOLDER/{ARCHIVE}: expected a zip archive, got a damaged one or none: "
member = rf"FOLDER/{ARCHIVE}: expected one member fra.txt, got "
line = rf"FOLDER/{ARCHIVE}: fra.txt, line "
pair = "expected an English sentence, a tab and a French sentence, got "

ARCHIVES = [
    *(
        Row(f"archive: {name}", sentences, {}, said, files={ARCHIVE: content})
        for name, content, said in (
            ("nothing", b"", spoilt + "File is not a zip file"),
            ("a text", LINES, spoilt + "File is not a zip file"),
            ("truncated", GOOD[:-30], spoilt),
            ("truncated in the middle", GOOD[: len(GOOD) // 2], spoilt),
            ("without its beginning", GOOD[40:], spoilt),
            ("a changed letter", GOOD.replace(b"Hi you", b"Hi yov"), spoilt + "Bad CRC-32 for file 'fra.txt'"),
            ("encrypted", with_header(GOOD, 8, b"\1\0"), spoilt + "File 'fra.txt' is encrypted, password required"),
            ("another way of packing", with_header(GOOD, 10, b"\x63\0"), spoilt + "fra.txt is packed in another way"),
            ("LZMA", with_header(GOOD, 10, b"\x0e\0"), spoilt + "fra.txt is packed in another way than by deflate"),
            ("claims four gigabytes", with_header(GOOD, 24, b"\xf0\xff\xff\xff"),
                rf"FOLDER/{ARCHIVE}: expected at most 134,217,728 bytes in fra.txt, got 4,294,967,280\."),
            ("holds more than it claims", LIES, spoilt + "Bad CRC-32 for file 'fra.txt'"),
            ("a directory elsewhere", with_header(GOOD, 42, b"\xff\xff\0\0"), spoilt),
            ("no member", zipped(LINES, "deu.txt"), member + r"\['deu.txt'\]"),
            ("two members", zipped(LINES, "a/fra.txt", "b/fra.txt"), member + r"\['a/fra.txt', 'b/fra.txt'\]"),
            ("a thousand members", zipped(b"", *(f"{i}.txt" for i in range(1000))),
                member + r"\['0.txt', '1.txt', .*, \.\.\.\]"),
            ("a folder of that name", zipped(b"", "fra.txt/"), member + r"\['fra.txt/'\]"),
            ("a symbolic link", linked("/etc/hostname"), line + "1: " + pair + "'/etc/hostname'"),
            ("invalid UTF-8", zipped("a\tb\nc\tété".encode("latin-1")), line + r"2: expected UTF-8, got b'\\xe9"),
            ("UTF-16", zipped("a\tb\n".encode("utf-16")), line + r"1: expected UTF-8, got b'\\xff'"),
            ("no sentences", zipped(b""), line + "1: " + pair + "''"),
            ("one line without a tab", zipped(b"Hi you."), line + "1: " + pair + "'Hi you.'"),
            ("a byte order mark alone", zipped(b"\xef\xbb\xbf"), line + "1: " + pair + r"'\\ufeff'"),
            ("zeros of a crash", zipped(bytes(5000)), line + "1: " + pair + r"'\\x00"),
            ("an endless line", zipped(b"a" * 10**6), line + "1: " + pair + "'aaaa"),
            ("a blank side", zipped("a\tb\n \u200b\tb\n".encode()), line + "2: " + pair),
            ("lines of another system", zipped(b"a\rb\rc"), line + "1: " + pair),
        )
    ),
    Row("archive: a folder without one", sentences, {"name": "."},
        rf"{VARIABLE}=FOLDER: expected {ARCHIVE} or a folder that holds it, found no FOLDER/{ARCHIVE}$",
        FileNotFoundError, {}),
    Row("archive: not there", sentences, {"name": "no.zip"},
        rf"{VARIABLE}=FOLDER/no.zip: expected {ARCHIVE} or a folder that holds it, found no FOLDER/no.zip$",
        FileNotFoundError, {}),
    Row("corpus: −1 pairs", tatoeba_corpus, {"train": -1}, "train: expected an integer of at least 0, got -1$"),
    Row("corpus: pairs as text", tatoeba_corpus, {"valid": "10"},
        "valid: expected an integer of at least 0, got '10'$"),
    Row("corpus: no words", tatoeba_corpus, {"max_words": 0}, "max_words: expected an integer of at least 1, got 0$"),
]

FILE = "a.json"
no_json = f"path: expected a file of JSON, got FOLDER/{FILE}: "


JSON = [
    *(
        Row(f"{read.__qualname__}: {name}", loading, {"name": FILE, "read": read}, said, error, {FILE: content})
        for read, name_of in ((Quiz.load, "questions"), (Translator.load, "exported"))
        for name, content, said, error in (
            ("nothing", b"", no_json + "Expecting value", ValueError),
            ("no JSON", b"{questions}", no_json + "Expecting property name", ValueError),
            ("cut short", b'[{"question": "?"', no_json + "Expecting ',' delimiter", ValueError),
            ("invalid UTF-8", b'["\xff"]', no_json + "'utf-8' codec can't decode byte 0xff", ValueError),
            ("nested 100,000 deep", DEEP, no_json + "maximum recursion depth exceeded", ValueError),
            ("a number", b"7", f"{name_of}: expected ", RefusedError),
        )
    ),
    *(
        Row(f"{read.__qualname__}: {name}", loading, {"name": path, "read": read}, said, error, {})
        for read in (Quiz.load, Translator.load)
        for name, path, said, error in (
            ("a folder", ".", r"\[Errno 21\] Is a directory: 'FOLDER'$", IsADirectoryError),
            ("not there", "no", r"\[Errno 2\] No such file or directory: 'FOLDER/no'$", FileNotFoundError),
        )
    ),
    Row("Quiz.load: a number as path", Quiz.load, {"path": 7}, "path: expected a path, got 7$"),
]

SCORES = [
    *(
        Row(f"{call.__name__}: {name}", call, {"hypotheses": found, "references": wanted}, message)
        for call in (bleu, exact_match)
        for name, found, wanted, message in (
            ("nothing", [], [], "hypotheses: expected at least one sentence, got none$"),
            ("one too many", [["a"]], [["a"], ["b"]], "references: expected 1, one for each of hypotheses, got 2$"),
            ("one text", "a", [["a"]], "hypotheses: expected sentences as sequences of words, got the string 'a'$"),
            ("texts", [["a"]], ["a b"], "references: expected sentences as sequences of words, got the string 'a b'$"),
        )
    ),
    Row("alignment: a list as map", alignment_error, {"attentions": [[[1.0]]], "links": [{(0, 0)}]},
        r"attentions: expected maps of shape \(T, S\), got list at 0$"),
    Row("alignment: three axes", alignment_error, {"attentions": [numbers(1, 2, 2)], "links": [{(0, 0)}]},
        r"attentions: expected maps of shape \(T, S\), got \(1, 2, 2\) at 0$"),
    Row("alignment: NaN", alignment_error, {"attentions": [torch.full((2, 2), NAN)], "links": [{(0, 0)}]},
        "attentions: expected finite floating weights, got others in the map at 0$"),
    Row("alignment: a link outside", alignment_error, {"attentions": [numbers(2, 3)], "links": [{(3, 0)}]},
        r"links: expected pairs within the map \(3, 2\) \(source, target\) of sentence 0, got \(3, 0\)$"),
    Row("alignment: links that are no pairs", alignment_error, {"attentions": [numbers(2, 3)], "links": [[0, 1]]},
        r"links: expected pairs \(source, target\) for sentence 0, got \[0, 1\]$"),
    Row("alignment: no links", alignment_error, {"attentions": [numbers(2, 3)], "links": [[]]},
        "links: expected at least one true link, got none$"),
    Row("diagonal: no target", diagonal_guess, {"source_length": 1, "target_length": 0},
        "target_length: expected an integer of at least 1, got 0$"),
]

TEXT = [
    *(
        Row(f"Vocab: {name}", Vocab, {"sentences": given}, f"sentences: expected {wanted}")
        for name, given, wanted in (
            ("nothing", [], "at least one word, got none$"),
            ("one text", "abc", "a sequence of words, got 'a'$"),
            ("texts", ["a b c"], "a sequence of words, got 'a b c'$"),
            ("a very long text", ["a" * 100_000], "a sequence of words, got 'aaaa"),
            ("an empty word", [["a", ""]], "words that are non-empty strings, got ''$"),
            ("None as a word", [["a", None]], "words that are non-empty strings, got None$"),
            ("a number as a word", [["a", 7]], "words that are non-empty strings, got 7$"),
            ("bytes as a word", [["a", b"b"]], "words that are non-empty strings, got b'b'$"),
            ("bytes as a sentence", [b"abc"], "words that are non-empty strings, got 97$"),
        )
    ),
    Row("Vocab: None", Vocab, {"sentences": None}, "sentences: expected some of them, got None$"),
    Row("encode: None", VOCAB.encode, {"tokens": None}, "tokens: expected a sequence of words, got None$"),
    Row("tokenize: bytes", tokenize, {"text": b"a b"}, "text: expected a string, got b'a b'$"),
    Row("bleu: ids", bleu, {"hypotheses": [[1, 2]], "references": [["a"]]},
        "hypotheses: expected words that are strings, got 1$"),
    Row("bleu: several references", bleu, {"hypotheses": [["a"]], "references": [[["a"], ["b"]]]},
        r"references: expected words that are strings, got \['a'\]$"),
    Row("exact_match: None", exact_match, {"hypotheses": [None], "references": [["a"]]},
        "hypotheses: expected sentences as sequences of words, got None$"),
    Row("Vocab: words seen never", Vocab, {"sentences": [["a"]], "min_count": 0},
        "min_count: expected an integer of at least 1, got 0$"),
    Row("encode: a text", VOCAB.encode, {"tokens": "abc"}, "tokens: expected a sequence of words, got 'abc'$"),
    Row("encode: a text in markup", VOCAB.encode, {"tokens": "</script>\n<eos>"},
        "tokens: expected a sequence of words, got '</script>"),
    Row("encode: no words", VOCAB.encode, {"tokens": []}, "tokens: expected at least one word, got none$"),
    Row("encode: an empty word", VOCAB.encode, {"tokens": ["a", ""]},
        "tokens: expected words that are non-empty strings, got ''$"),
    Row("decode: past the end", VOCAB.decode, {"ids": [4, 7]}, "ids: expected integers from 0 to 6, got 7$"),
    Row("decode: −1", VOCAB.decode, {"ids": [-1]}, "ids: expected integers from 0 to 6, got -1$"),
    Row("Pair: texts", Pair, {"source": "a b", "target": "b a"},
        "source: expected a non-empty tuple of words, got 'a b'$"),
    Row("Pair: an empty side", Pair, {"source": ("a",), "target": ()},
        r"target: expected a non-empty tuple of words, got \(\)$"),
    Row("Pair: a link past the end", Pair, {"source": ("a",), "target": ("b",), "links": frozenset({(1, 0)})},
        "links: expected"),
]

MAP = numbers(2, 3)
drawn = {"weights": MAP, "source": ["a", "b", "c"], "target": ["x", "y"]}
question = {
    "question": "?",
    "options": [{"text": "1", "right": True, "why": "."}, {"text": "2", "right": False, "why": "."}],
}
explained = {
    "sentences": [["a", "b"]],
    "predictions": [[([("a", 0.5)], 1, 0.5), None]],
    "weights": [torch.full((2, 1, 1, 2), 0.5)],
}
seen = {"images": np.zeros((1, 4, 4, 3), np.uint8), "weights": [torch.full((4, 4), 0.25)], "patch_size": 2}
exported = export_translator(MODEL, VOCAB, VOCAB)


def set_to(widget, name, value):
    setattr(widget, name, value)


def later(widget, trait, value, said, error=RefusedError):
    """A row that sets a trait of a finished widget to nonsense."""
    return Row(
        f"{type(widget).__name__}.{trait} = {value!r:.20}",
        set_to,
        {"widget": widget, "name": trait, "value": value},
        f"{trait}: expected {said}",
        error,
    )


WIDGETS = [
    *(
        Row(f"{call.__name__}: {name}", call, {**drawn, **given}, message)
        for call in (AttentionHeatmap, heatmap)
        for name, given, message in (
            ("one axis", {"weights": numbers(3)},
                r"weights: expected \(T, S\), \(H, T, S\) or \(L, H, T, S\), .*, got shape \(3,\)$"),
            ("NaN", {"weights": torch.full((2, 3), NAN)}, r"weights: expected finite numbers that are not negative"),
            ("negative weights", {"weights": -MAP}, r"weights: expected finite numbers that are not negative"),
            ("complex weights", {"weights": MAP.to(torch.complex64)}, "weights: expected numbers in a tensor, got"),
            ("numbers as text", {"weights": np.array([["1", "0", "0"]] * 2)},
                "weights: expected numbers in a tensor, got ndarray$"),
            ("None", {"weights": None}, "weights: got None; Hugging Face gives weights only with"),
            ("no maps", {"weights": {}}, "weights: expected at least one layer, head, query and key, got none$"),
            ("a batch", {"weights": [numbers(2, 1, 2, 3)]}, r"weights\[0\]: expected one sentence, got a batch of 2"),
            ("tokens as a text", {"source": "abc"},
                "source: expected a sequence of 3 strings, got str; split it first$"),
            ("ids as tokens", {"target": [4, 5]}, "target: expected strings, got 4$"),
            ("bytes as tokens", {"target": b"xy"}, "target: expected strings, got 120$"),
            ("one token too few", {"source": ["a", "b"]}, "source: expected 3 tokens, as the weights have, got 2 "),
            ("a link past the end", {"links": [(3, 0)]},
                r"links: expected \(source index below 3, target index below 2\), got \(3, 0\)$"),
            ("a negative link", {"links": [(0, -1)]},
                r"links: expected \(source index below 3, target index below 2\), got \(0, -1\)$"),
            ("links as a number", {"links": 7}, r"links: expected pairs \(source index, target index\), got 7$"),
            ("a title of bytes", {"title": b"t"}, "title: expected a string, got b't'$"),
        )
    ),
    Row("AttentionHeatmap: layer 1 of 1", AttentionHeatmap, {**drawn, "layer": 1},
        "layer: expected a whole number from 0 to 0, got 1$", RefusedError),
    Row("AttentionHeatmap: head as text", AttentionHeatmap, {**drawn, "head": "0"},
        "head: expected a whole number from 0 to 0, got '0'$", RefusedError),
    Row("heatmap: two heads", heatmap, {**drawn, "weights": numbers(2, 2, 3)},
        "weights: expected one map, got 1 layers and 2 heads; pick one$"),
    Row("plots: a row as table", positional_matrix, {"ax": None, "table": [1.0, 2.0]},
        r"table: expected encodings \(length, dim\), got shape \(2,\)$"),
    Row("plots: pair −1", positional_pair, {"ax": None, "table": numbers(2, 4), "pair": -1},
        "pair: expected one from 0 to 1, got -1$"),
    *(
        later(AttentionHeatmap(**drawn), trait, value, f"a whole number from {low} to {high}, got {value!r}$")
        for trait, value, low, high in (
            ("layer", "x", 0, 0),
            ("layer", None, 0, 0),
            ("head", -1, 0, 0),
            ("head", True, 0, 0),
            ("row", -2, -1, 1),
            ("row", 2, -1, 1),
            ("row", 0.5, -1, 1),
        )
    ),
    Row("PatternExplorer: another pattern", AttentionPatternExplorer, {"pattern": "dense"},
        "pattern: expected one of 'full', .*, got 'dense'$", RefusedError),
    Row("PatternExplorer: too long", AttentionPatternExplorer, {"n": 10**9},
        "n: expected a whole number from 16 to 96, got 1000000000$", RefusedError),
    later(AttentionPatternExplorer(), "window", -1, "a whole number from 0 to 32, got -1$"),
    later(AttentionPatternExplorer(), "num_buckets", 3, "an even number from 2 to 16, got 3$"),
    later(AttentionPatternExplorer(), "causal", "no", "one of False, True, got 'no'$"),
    later(AttentionPatternExplorer(), "query", 64, "a whole number from 0 to 63, got 64$"),
    Row("Positional: position −1", PositionalEncodingExplorer, {"position": -1},
        "position: expected a whole number from 0 to 255, got -1$", RefusedError),
    later(PositionalEncodingExplorer(), "position", -1, "a whole number from 0 to 255, got -1$"),
    later(PositionalEncodingExplorer(), "base", NAN, "a number from 2 to 100000, got nan$"),
    later(PositionalEncodingExplorer(), "dim", "32", "a whole number from 2 to 256, got '32'$"),
    Row("KernelSmoother: NaN", KernelSmoother, {"x": [1.0, NAN], "y": [1.0, 2.0]},
        "x: expected 2 to 40 numbers from -100000 to 100000, got nan among them$", RefusedError),
    Row("KernelSmoother: one place", KernelSmoother, {"x": [4.0, 4.0], "y": [1.0, 2.0]},
        "x: expected at least two different numbers, got 4 alone$", RefusedError),
    later(KernelSmoother([0, 10], [1, 2]), "bandwidth", 0.0, "a number from 0.02 to 50, got 0.0$"),
    Row("OnlineSoftmax: NaN", OnlineSoftmaxStepper, {"scores": [NAN], "values": [1.0]},
        "scores: expected 1 to 24 numbers from -1000 to 1000, got nan among them$", RefusedError),
    Row("OnlineSoftmax: as text", OnlineSoftmaxStepper, {"scores": "1 2", "values": [1.0]},
        "scores: expected 1 to 24 numbers from -1000 to 1000, got '1 2'$", RefusedError),
    Row("OnlineSoftmax: no values", OnlineSoftmaxStepper, {"scores": [1.0]},
        "values: expected as many numbers as scores, got None$"),
    later(OnlineSoftmaxStepper(), "scores", [1.0], "8 numbers, as many as values, got 1$"),
    later(OnlineSoftmaxStepper(), "tile", 0, "a whole number from 1 to 24, got 0$"),
    later(PagedCacheExplorer(), "block_size", 3, "one of 1, 2, 4, 8, 16, got 3$"),
    later(PagedCacheExplorer(), "events", [["sing"]], r'\["start", new, tokens\], .*, got \[\'sing\'\]$'),
    later(PagedCacheExplorer(), "events", 3, "a sequence of events, got 3$"),
    later(PagedCacheExplorer(), "events", [["start", "A", -1]], "a whole number from 1 to 2048, got -1$"),
    later(PagedCacheExplorer(), "step", 10**6, "a whole number from 0 to 10000, got 1000000$"),
    Row("PatchAttention: grey", PatchAttentionExplorer, {**seen, "images": np.zeros((1, 4, 4), np.uint8)},
        r"images: expected \(images, height, width, 3\), got shape \(1, 4, 4\)$"),
    Row("PatchAttention: too bright", PatchAttentionExplorer, {**seen, "images": np.full((1, 4, 4, 3), 2.0)},
        "images: expected floating numbers from 0 to 1, got others$"),
    Row("PatchAttention: other patches", PatchAttentionExplorer, {**seen, "weights": [torch.full((4, 3), 0.25)]},
        r"weights: expected \(1, 1, queries, 4\) for every image, got shape \(1, 1, 4, 3\)"),
    Row("PatchAttention: rows of 4", PatchAttentionExplorer, {**seen, "weights": [torch.ones(4, 4)]},
        "weights: expected rows that sum to at most 1, got 4$"),
    Row("PatchAttention: a divisor", PatchAttentionExplorer, {**seen, "patch_size": 3},
        "patch_size: expected a divisor of 4 and 4, the images' sides, got 3$"),
    later(PatchAttentionExplorer(**seen), "query", 4, "a whole number from 0 to 3, got 4$"),
    later(PatchAttentionExplorer(**seen), "layer", None, "a whole number from 0 to 0, got None$"),
    later(PatchAttentionExplorer(**seen), "image", "0", "a whole number from 0 to 0, got '0'$"),
    Row("MaskedWord: a text", MaskedWordExplorer, {**explained, "sentences": "a b"},
        "sentences: expected a sequence, an entry for each sentence, got 'a b'$"),
    Row("MaskedWord: no predictions", MaskedWordExplorer, {**explained, "predictions": [[None, None]]},
        r"predictions\[0\]: expected a prediction for at least one token, got None for all$"),
    Row("MaskedWord: weights of 3", MaskedWordExplorer, {**explained, "weights": [torch.ones(2, 1, 1, 2)]},
        r"weights\[0\]: expected rows that sum to 1, got a sum that is 1 away$"),
    later(MaskedWordExplorer(**explained), "position", 1, r"-1 or a word that can be hidden \(0\), got 1$"),
    later(MaskedWordExplorer(**explained), "guesses", [[0, 1, "a"]],
        r"\[sentence, position, word or None\], .*, got \[0, 1, 'a'\]$"),
    Row("Quiz: nothing", Quiz, {"questions": []}, r"questions: expected a list of at least one question, got \[\]$",
        RefusedError),
    Row("Quiz: a text", Quiz, {"questions": ["?"]},
        r"questions\[0\]: expected a dict with the keys question, options, got '\?'$", RefusedError),
    Row("Quiz: two are right", Quiz, {"questions": [{**question, "options": [question["options"][0]] * 2}]},
        r"questions\[0\].options: expected exactly one right option, got 2$", RefusedError),
    Row("Quiz: right as a number", Quiz, {"questions": [{**question,
        "options": [{"text": "1", "right": 1, "why": "."}] * 2}]},
        r"questions\[0\].options\[0\].right: expected True or False, got 1$", RefusedError),
    later(Quiz([question]), "questions", [], r"a list of at least one question, got \[\]$"),
    later(Quiz([question]), "questions", 3, "a list of at least one question, got 3$"),
    Row("Quiz: set to a text", set_to, {"widget": Quiz([question]), "name": "questions", "value": ["?"]},
        r"questions\[0\]: expected a dict with the keys question, options, got '\?'$", RefusedError),
    Row("Translator: nothing", Translator, {"exported": {}},
        r"exported: expected the result of export_translator, got \[\]$", RefusedError),
    Row("Translator: words in one text", Translator, {"exported": {**exported, "source": "a b"}},
        "exported: expected a list of words under 'source', got 'a b'$", RefusedError),
    Row("Translator: an unknown word", Translator, {"exported": exported, "sentence": "a dog"},
        "sentence: expected words that the model knows, got 'dog'$", RefusedError),
    Row("Translator: blanks", Translator, {"exported": exported, "sentence": " \n"},
        r"sentence: expected a text, got ' \\n'$", RefusedError),
    later(Translator(exported, "a b"), "sentence", "</script>", "words that the model knows, got"),
    later(Translator(exported, "a b"), "exported", 3, "the result of export_translator, got 3$"),
    Row("export: a language model", export_translator, {"model": WRITER, "source_vocab": VOCAB, "target_vocab": VOCAB},
        "model: expected a Transformer or a Seq2Seq, got LanguageModel$"),
    Row("export: words in a list", export_translator, {"model": MODEL, "source_vocab": ["a"], "target_vocab": VOCAB},
        "source_vocab: expected a Vocab of 7 words, as the model's, got list$"),
    Row("widget without a picture", StaticWidget.picture, {"self": StaticWidget()},
        r"StaticWidget: expected a method picture\(\) that returns a PNG$"),
]
