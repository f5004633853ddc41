"""What a check says of an answer that is wrong in no known way; the frame itself."""

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from attn_book.check.difference import difference
from attn_book.check.exercise import Case, Check, Misconception, NotYet, hint

READ = ("chapters/01_pooling", "Queries, keys and values")


def cases(draw):
    yield Case("a row", (draw.normal(draw.whole(3, 5)),))
    yield Case("zeros", (torch.zeros(4),), edge=True)


double = Check(
    "double",
    answer=lambda x: 2 * x,
    cases=cases,
    misconceptions=[
        Misconception(lambda x: x + 2, "2 is added", "Adding is not doubling.", READ),
        Misconception(lambda x: 2 / x, "it is divided", "Dividing is not doubling.", READ),
        Misconception(lambda x: x.view(7), "it is reshaped", "Reshaping is not doubling.", READ),
        Misconception(lambda x: 2 * x if x.any() else x + 3, "zeros are not doubled", "They are.", READ),
    ],
    hints=["Think of two.", "Multiply."],
)


def said(attempt, **options):
    with pytest.raises(NotYet) as caught:
        double(attempt, **options)
    return " ".join(str(caught.value).split())


@pytest.mark.parametrize(
    "attempt, message",
    [
        (lambda x: None, "It returns None. Is there a return?"),
        (lambda x: x.tolist(), "It returns a list; expected a tensor."),
        (lambda x: 2 * x[:-1], "The shape is"),
        (lambda x: (2 * x).double(), "The dtype is float64; expected float32."),
        (lambda x: 2 * x * float("nan"), "entries are NaN; the first is at [0]"),
        (lambda x: 2 * x + (torch.arange(len(x)) == 1), "entries differ; the first is at [1]: "),
        (lambda x: x[9], "It stops with IndexError: index 9 is out of bounds"),
        (lambda x: x.mul_(2), "It changes its argument 1 in place"),
    ],
    ids=["None", "list", "shape", "dtype", "NaN", "entry", "error", "in place"],
)
def test_a_mistake_that_nobody_knows_is_described(attempt, message):
    heard = said(attempt, seed=0)
    assert message in heard
    assert "comes out when" not in heard and "check.hint(check.double)" in heard


def test_a_known_mistake_is_named_with_where_to_read():
    with pytest.raises(NotYet) as caught:
        double(lambda x: x + 2.0)
    assert str(caught.value).splitlines() == [
        "double: not yet, on a row.",
        "This is what comes out when 2 is added. Adding is not doubling.",
        "To read: “Queries, keys and values” in chapters/01_pooling. For a hint:",
        "check.hint(check.double).",
    ]


def test_a_mistake_of_the_edge_cases_is_known():
    assert "zeros are not doubled" in said(lambda x: x + x if x.any() else x + 3)


def test_the_first_of_two_mistakes_is_known_where_the_second_does_not_show():
    assert "2 is added" in said(lambda x: x + 2 if x.any() else x - 1)
    assert "comes out when" not in said(lambda x: 2 * x if x.any() else x - 1)


def test_the_usual_inputs_leave_out_the_edges(capsys):
    double.usual(lambda x: 2 * x if x.any() else x + 2)
    assert capsys.readouterr().out == "double: right, on 1 input; the full check has 1 more, and harder.\n"
    double(lambda x: x * 2)
    assert capsys.readouterr().out == "double: right, on 2 inputs.\n"


def test_hints_come_one_at_a_time_and_begin_again(capsys):
    double.hints_given = 0
    for _ in range(3):
        hint(double)
    assert capsys.readouterr().out.splitlines() == [
        "Hint 1 of 2: Think of two.",
        "Hint 2 of 2: Multiply.",
        "Hint 1 of 2: Think of two.",
    ]
    with pytest.raises(ValueError, match="check: expected one of the checks"):
        hint("double")


def test_a_notebook_shows_the_sentence_and_no_traceback(capsys):
    shell = InteractiveShell()
    shell.run_cell("from attn_book import check\ncheck.dot_product_attention(lambda q, k, v, mask: None)")
    shown = capsys.readouterr().out
    assert "It returns None" in shown and "Traceback" not in shown and "exercise.py" not in shown


@pytest.mark.parametrize(
    "found, wanted, message",
    [
        (True, 1.0, "expected a number"),
        (float("nan"), float("nan"), None),
        ("a", "b", "It returns 'a'; expected 'b'."),
        ((1.0, 2.0), (1.0, 3.0), "In result 2: it returns 2; expected 3."),
        (1.0, (1.0, 3.0), "expected 2 results, as a tuple"),
        ({"a": 1.0}, {"a": 2.0}, "In 'a': it returns 1; expected 2."),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "at [1]: 2; expected 3."),
        (torch.tensor([float("inf")]), torch.tensor([float("inf")]), None),
        (torch.zeros(0), torch.zeros(0), None),
    ],
)
def test_a_difference_is_put_in_words(found, wanted, message):
    heard = difference(found, wanted, 1e-4)
    assert heard is None if message is None else message in heard
