"""What travels between the grader and a student's process."""

import pickle

import numpy
import pytest
import torch

from exercises.wire import from_line, pack, to_line, unpack


def through(value):
    return unpack(from_line(to_line({"value": pack(value, lambda _: 7)}))["value"], lambda *found: found)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2.5, "√d", float("inf"), (1, [2, "a"]), {"a": (1,), 2: None}, [], {}],
    ids=repr,
)
def test_plain_values_come_through(value):
    assert through(value) == value and type(through(value)) is type(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.float16])
def test_tensors_come_through_and_can_be_written_to(dtype):
    for shape in ((), (0, 3), (2, 3)):
        sent = torch.arange(6)[: torch.Size(shape).numel()].reshape(shape).to(dtype)
        got = through(sent)
        assert got.dtype == dtype and torch.equal(got, sent)
        got.zero_()


def test_a_view_is_sent_as_what_it_shows():
    sent = torch.arange(6.0).view(2, 3).mT.requires_grad_()
    assert torch.equal(through(sent), sent) and not through(sent).requires_grad


def test_any_other_object_stays_and_is_named():
    assert through([object(), numpy.ones(2)]) == [(7, "object"), (7, "numpy array")]
    assert through(torch.ones(2, dtype=torch.bfloat16)) == (7, "bfloat16 tensor")


@pytest.mark.parametrize(
    "sent",
    [
        {"call": "os.system"},
        {"tensor": ["torch.float32", [3], "AAAA"]},
        {"tensor": ["torch.float32", [-1], ""]},
        {"tensor": ["torch.bfloat16", [0], ""]},
        {"tensor": ["torch.float32", [1], "?"]},
        {"object": ["one", "a"]},
        {"object": 1},
        {"dict": [[1]]},
        [1],
        {},
    ],
    ids=repr,
)
def test_what_pack_never_gives_is_refused(sent):
    with pytest.raises(ValueError):
        unpack(sent, lambda number, _: number)


def test_what_is_more_than_the_grader_should_work_through_is_refused():
    with pytest.raises(ValueError, match="strings of at most"):
        through("a" * 30_000)
    with pytest.raises(ValueError, match="at most 100,000 values"):
        through([[]] * 60_000)


@pytest.mark.parametrize("line", [b"", b"3", b"[1]", b"{", b"\xff", pickle.dumps({"run": "x"}), b"[" * 100_000])
def test_a_line_that_is_no_message_is_refused(line):
    with pytest.raises(ValueError, match="line: expected a message"):
        from_line(line)
