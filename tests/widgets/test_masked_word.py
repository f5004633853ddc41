import base64
import json

import numpy as np
import pytest
import torch

from attn_book.widgets.masked_word import MaskedWordExplorer

STATE = "sentences predictions layers heads codes sentence position layer head guesses".split()
SENTENCES = ["<cls> the cat sleeps .".split(), "<cls> a dog eats the bread .".split()]
# The true words: second, first, beyond the last, and at a tie with the last.
PREDICTIONS = [
    [
        None,
        ([("a", 0.5), ("the", 0.25), ("this", 0.125)], 2, 0.25),
        ([("cat", 0.7), ("dog", 0.2)], 1, 0.7),
        ([("eats", 0.6), ("runs", 0.3)], 7, 0.004),
        ([("!", 0.5), ("?", 0.25)], 2, 0.25),
    ],
    [None, ([("a", 1.0)], 1, 1.0), None, ([("eats", 0.9)], 1, 0.9), None, None, None],
]
WEIGHTS = [torch.randn(n, 2, 3, n, generator=torch.Generator().manual_seed(n)).softmax(-1) for n in (5, 7)]


def explorer(**options):
    return MaskedWordExplorer(SENTENCES, PREDICTIONS, WEIGHTS, **options)


def state(widget):
    return {name: getattr(widget, name) for name in STATE}


@pytest.mark.parametrize("sentence", [0, 1])
def test_attention_is_that_of_the_layer_and_head_or_the_mean_that_is_meant(sentence):
    widget = explorer(sentence=sentence)
    weights = WEIGHTS[sentence].double()
    for position in (1, 3):
        for layer, head in np.ndindex(2, 3):
            widget.layer, widget.head = int(layer), int(head)
            np.testing.assert_allclose(widget.attention(position), weights[position, layer, head], atol=1 / 500)
        widget.head = -1
        np.testing.assert_allclose(widget.attention(position), weights[position, 1].mean(0), atol=1 / 500)
        widget.layer = -1
        expected = weights[position].mean((0, 1))
        for widget.head in (-1, 2):
            np.testing.assert_allclose(widget.attention(position), expected, atol=1 / 500)


def test_rows_that_cannot_be_hidden_are_not_read():
    spoilt = [array.clone() for array in WEIGHTS]
    spoilt[0][0], spoilt[1][[0, 2, 4, 5, 6]] = float("nan"), -1.0
    assert state(MaskedWordExplorer(SENTENCES, PREDICTIONS, spoilt)) == state(explorer())
    assert len(base64.b64decode(explorer().codes)) == 6 * (4 * 5 + 2 * 7)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64, "numpy", "needs grad"])
def test_weights_come_as_tensors_and_arrays_of_any_kind_and_are_not_kept(kind):
    given = [w.numpy() if kind == "numpy" else w.clone().requires_grad_() if kind == "needs grad" else w.to(kind)
             for w in WEIGHTS]  # fmt: skip
    widget = MaskedWordExplorer(SENTENCES, PREDICTIONS, given)
    np.testing.assert_allclose(widget.attention(3), WEIGHTS[0][3].mean((0, 1)), atol=1 / 100)
    assert kind == "numpy" or all(torch.allclose(w.float(), v, atol=0.01) for w, v in zip(given, WEIGHTS, strict=True))


def test_arguments_become_plain_and_are_not_kept():
    sentences, predictions = [list(text) for text in SENTENCES], [list(entries) for entries in PREDICTIONS]
    predictions[0][2] = ((("cat", torch.tensor(0.7)), ("dog", np.float32(0.2))), np.int64(1), torch.tensor(0.7))
    widget = MaskedWordExplorer(iter(sentences), map(iter, predictions), iter(WEIGHTS), sentence=np.int64(1))
    sentences[0][1], predictions[0][1] = "no", None
    assert state(widget) == state(explorer(sentence=1))
    assert json.loads(json.dumps(state(widget))) == state(widget)
    assert type(widget.sentence) is int


PAIRS = [("cat", 0.7), ("dog", 0.2)]
CAT = (PAIRS, 1, 0.7)


@pytest.mark.parametrize(
    "entry",
    [
        "cat", 7, (PAIRS, 1), (["cat"], 1, 0.7), ([("cat", "much")], 1, 0.7), ([], 1, 0.7), ([(3, 0.7)], 1, 0.7),
        ([("cat", 0.4), ("cat", 0.3)], 1, 0.4), ([("dog", 0.2), ("cat", 0.7)], 2, 0.7),
        ([("cat", 0.7), ("dog", 0.4)], 1, 0.7), ([("cat", 0.7), ("dog", -0.2)], 1, 0.7),
        ([("cat", float("nan"))], 1, 0.7), (PAIRS, 1.5, 0.7), (PAIRS, 0, 0.7), (PAIRS, 2, 0.7), (PAIRS, 2, 0.2),
        (PAIRS, 3, 0.1), (PAIRS, 1, 0.6), (PAIRS, 1, 1.7), ([("dog", 0.7), ("cow", 0.2)], 2, 0.2001),
        ([("dog", 0.7), ("cow", 0.2)], 1, 0.7), ([("dog", 0.7), ("cow", 0.2)], 3, 0.21),
    ],
    ids=str,
)  # fmt: skip
def test_refuses_a_prediction_that_does_not_fit(entry):
    entries = [None, None, entry, None, None]
    MaskedWordExplorer(SENTENCES[:1], [[None, None, CAT, None, None]], WEIGHTS[:1])
    with pytest.raises(ValueError, match=r"^predictions\[0\]\[2\]: expected .*, got "):
        MaskedWordExplorer(SENTENCES[:1], [entries], WEIGHTS[:1])


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("words", [("dog", "cat", "cow"), ("dog", "cow", "cat")])
def test_equal_probabilities_may_stand_in_either_order(words, rank):
    for count in (2, 3):
        candidates = list(zip(words, (0.4, 0.2, 0.2), strict=True))[:count]
        widget = MaskedWordExplorer(
            SENTENCES[:1], [[None, None, (candidates, rank, 0.2), None, None]], WEIGHTS[:1], position=2
        )
        assert f"rank {rank}" in widget.describe()


def change(where, value):
    """The arguments, one of them changed."""
    arguments = [list(SENTENCES), list(PREDICTIONS), list(WEIGHTS)]
    name, *index = where
    arguments[name] = value if not index else [*arguments[name][: index[0]], value, *arguments[name][index[0] + 1 :]]
    return arguments


ONES = torch.ones(7, 2, 3, 7)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        *[((0,), []), ((0,), 3), ((0,), "the cat"), ((0, 1), "the cat"), ((0, 1), []), ((0, 1), ["the", 3])],
        *[((1,), PREDICTIONS[:1]), ((1,), None), ((1, 1), PREDICTIONS[0]), ((1, 1), [None] * 7)],
        *[((2,), WEIGHTS[:1]), ((2, 1), WEIGHTS[0]), ((2, 0), WEIGHTS[0][0]), ((2, 1), ONES[:, :1])],
        *[((2, 0), [[0.5]]), ((2, 1), ONES / 6), ((2, 1), ONES - ONES.cumsum(-1)), ((2, 1), ONES * torch.nan)],
    ],
)
def test_refuses_arguments_that_do_not_fit(where, value):
    named = ("sentences", "predictions", "weights")[where[0]]
    with pytest.raises(ValueError, match=rf"^{named}(\[{where[-1]}\])?: expected"):
        MaskedWordExplorer(*change(where, value))


@pytest.mark.parametrize("position", [0, 2, 6])
def test_refuses_to_hide_a_token_without_a_prediction(position):
    with pytest.raises(ValueError, match="^position: expected"):
        explorer(sentence=1, position=position)
    with pytest.raises(ValueError, match="^position: expected"):
        explorer(sentence=1).attention(position)


def test_another_sentence_keeps_the_position_only_where_it_can_be_hidden():
    widget = explorer(position=2)
    widget.sentence = 1
    assert widget.position == -1
    widget.set_state({"sentence": 0, "position": 3})
    assert (widget.sentence, widget.position) == (0, 3)
    widget.sentence = 1
    assert widget.position == 3


def test_description():
    weights = [torch.zeros(n, 2, 3, n) for n in (5, 7)]
    for array in weights:
        array[..., 0], array[..., 2] = 0.25, 0.75
    widget = MaskedWordExplorer(SENTENCES, PREDICTIONS, weights, position=3)
    assert widget.describe() == (
        "Predict the masked word: <cls> the cat ____ . The model says: eats 60 %, runs 30 %. The true word is sleeps, "
        "rank 7, <1 %. Attention from the blank, mean of all heads: most to cat 75 %, <cls> 25 %, the 0 %."
    )
    widget.set_state({"sentence": 1, "position": -1, "layer": 1})
    assert widget.describe() == (
        "Predict the masked word: <cls> ____ dog eats the bread . The model says: a 100 %. The true word is a, rank 1, "
        "100 %. Attention from the blank, layer 1, mean of heads: most to dog 75 %, <cls> 25 %, ____ 0 %."
    )
