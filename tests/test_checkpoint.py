import json
import math
import os
import pickle
import random
import struct

import pytest
import safetensors.torch
import torch

from attn_book.train.checkpoint import FORMAT, Checkpoint, _checksum, load, load_matching, save

shared = torch.arange(6.0)
SMALL = Checkpoint(
    {
        "weight": torch.tensor([[1.5, -2.0], [0.25, 3.0]]),
        "transposed": torch.arange(6.0).view(2, 3).T,
        "expanded": torch.ones(1).expand(3),
        "tied": shared,
        "part": shared[2:4],
        "again": shared,
        "half": torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
        "switch": torch.tensor([True, False, True]),
        "count": torch.tensor(7),
        "nothing": torch.zeros(0, dtype=torch.float64),
    },
    {"epochs": 3, "rate": 0.1, "seed": None, "clip": math.inf},
    {"found": [{"bleu": 0.1 + 0.2}], "über": "é"},
)
TINY = Checkpoint({"weight": SMALL.tensors["weight"], "count": torch.tensor(7)}, {"epochs": 3}, {"seconds": 0.5})


def with_header(header, data=b""):
    """A file of the format: eight bytes that say how long the header is, the header, the tensors' bytes."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_what_is_saved_is_loaded(tmp_path):
    path = tmp_path / "run.safetensors"
    save(str(path), SMALL)
    found = load(str(path))
    assert set(found.tensors) == set(SMALL.tensors)
    for name, tensor in SMALL.tensors.items():
        assert torch.equal(found.tensors[name], tensor) and found.tensors[name].dtype == tensor.dtype, name
    assert (found.settings, found.progress) == (SMALL.settings, SMALL.progress)
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
    # Any reader of the format can read it.
    assert torch.equal(safetensors.torch.load_file(path)["weight"], SMALL.tensors["weight"])


def test_a_file_cut_short_anywhere_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "run.safetensors"
    save(path, TINY)
    whole = path.read_bytes()
    for length in reversed(range(len(whole))):
        os.truncate(path, length)
        with pytest.raises(ValueError, match=r"checkpoint: expected a whole checkpoint, got .*run\.safetensors"):
            load(path)
        assert path.read_bytes() == whole[:length]


def test_a_file_with_any_byte_changed_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    save(path, TINY)
    whole = path.read_bytes()
    draw = random.Random(0)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"checkpoint: expected .* got .*run\.safetensors"):
            load(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"learning_rate: 0.1\n" * 50,
        pickle.dumps({"weight": [1.0]}),
        bytes(1000),
        safetensors.torch.save({"weight": torch.ones(2)}),
        safetensors.torch.save({"weight": torch.ones(2)}, {"format": "pt" * 10_000}),
        safetensors.torch.save({}, {"format": FORMAT}),
        safetensors.torch.save({}, {"format": FORMAT, "text": "[]", "checksum": _checksum({}, "[]")}),
        with_header({"a": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]}}, bytes(4)),
        with_header({"__metadata__": None}),
        with_header({"__metadata__": [1]}),
        struct.pack("<Q", 2**63),
        struct.pack("<Q", 200_000) + b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=[
        *("empty", "text", "pickle", "zeros", "weights", "weights of another program", "no text", "a list as text"),
        *("a dtype that PyTorch has not", "no metadata", "a list as metadata", "a length of 2^63", "nested deep"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "run.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint: expected .* got .*run\.safetensors") as caught:
        load_matching(path, {})
    assert path.read_bytes() == content and len(str(caught.value)) < 200 + len(str(path))


def test_other_settings_are_named(tmp_path):
    path = tmp_path / "run.safetensors"
    assert load_matching(path, {}) is None
    save(path, SMALL)
    assert load_matching(path, dict(SMALL.settings)).progress == SMALL.progress
    with pytest.raises(ValueError, match=r"run\.safetensors is of another run; rate: expected 0.1, got 0.2$"):
        load_matching(path, {**SMALL.settings, "rate": 0.2})
    with pytest.raises(ValueError, match=r"seed: expected None, got nothing; warmup: expected nothing, got 1$"):
        load_matching(path, {"epochs": 3, "rate": 0.1, "clip": math.inf, "warmup": 1})
    with pytest.raises(ValueError, match=r"; 2: expected nothing, got 2; and 4 more$"):
        load_matching(path, {**SMALL.settings, "epochs": 4, "rate": 1} | {str(i): i for i in range(7)})


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch, broken):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    path = tmp_path / "run.safetensors"
    save(path, SMALL)
    whole = path.read_bytes()
    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="No space left"):
        save(path, Checkpoint({}, {}, {}))
    assert path.read_bytes() == whole
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
