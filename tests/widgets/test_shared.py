"""What all widgets share: state, HTML that stands alone, a picture and a sentence about it, and refusals."""

import base64
import inspect
import io
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import NamedTuple

import ipywidgets
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image

from attn_book import widgets
from attn_book.data import Vocab
from attn_book.painter import Painter
from attn_book.widgets.base import StaticWidget
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq

matplotlib.use("Agg")
EVIL = '</script><img src=x onerror="alert(1)"><!-- ]]> $\\frac$ & \''
NOT_WHOLE = (None, "3", True, 2.5, math.nan, -1000, 10**400, [], "</script>")
NOT_REAL = (None, "1", True, math.nan, math.inf, [], 10**400, -1.0)
NO_ROW = (None, "1, 2", b"12", 3, [], [0] * 41, [1, "2"], [True, 1], [1, math.nan], [1e6, 1], [[1], [2]])


class Sample(NamedTuple):
    """A widget, made anew with changes; a state that it may change to; how large its HTML may be; what it refuses."""

    make: Callable[..., StaticWidget]
    changes: dict[str, object]
    size: int
    said: str
    refused: dict[str, tuple[object, ...]]
    texts: tuple[str, ...] = ()  # the arguments that are text


def heatmap(**changes):
    weights = torch.arange(120.0).reshape(2, 3, 4, 5).sin().softmax(-1)
    tokens = "the black cat . <eos>".split(), "le chat noir .".split()
    return widgets.AttentionHeatmap(weights, *tokens, links=[(0, 0), (2, 1)], **changes)


def masked_word(**changes):
    tokens = "<cls> the cat sleeps .".split()
    said = [None, ([("a", 0.5)], 2, 0.25), ([("cat", 0.7), ("dog", 0.2)], 1, 0.7), None, None]
    return widgets.MaskedWordExplorer([tokens] * 2, [said] * 2, [torch.full((5, 2, 3, 5), 0.2)] * 2, **changes)


def patches(*, words=("a", "red"), **changes):
    pictures = np.linspace(0, 1, 2 * 48 * 48 * 3).reshape(2, 48, 48, 3)
    weights = torch.arange(72.0).reshape(2, 2, 2, 9).softmax(-1)
    return widgets.PatchAttentionExplorer(pictures, [weights] * 2, patch_size=16, queries=[words] * 2, **changes)


def smoother(**changes):
    return widgets.KernelSmoother(**{"x": [0, 1, 3, 10], "y": [2, -1, 4, 0], **changes})


def stepper(**changes):
    return widgets.OnlineSoftmaxStepper(**{"scores": [2, 1, 3, 0.5], "values": [1, -2, 4, 8], **changes})


def quiz(question="Which `scale`?", **changes):
    options = [{"text": f"{question} {k}", "right": k == 1, "why": f"{question} why"} for k in range(2)]
    return widgets.Quiz(changes.get("questions", [{"question": question, "options": options}]))


def translator(sentence="the cat ."):
    torch.manual_seed(8)  # one that writes a word before it ends
    source, target = Vocab([["the", "cat", ".", EVIL.replace(" ", "")]]), Vocab([["le", "chat", ".", "</script>"]])
    sizes = {"embed_dim": 6, "hidden_dim": 5}
    model = Seq2Seq(Encoder(len(source), **sizes), BahdanauDecoder(len(target), **sizes, memory_dim=10))
    return widgets.Translator.of(model, source, target, sentence)


def painter(caption="a ring"):
    torch.manual_seed(0)
    vocab = Vocab([["a", "blue", "ring", EVIL.replace(" ", "")]])
    model = Painter(len(vocab), dim=8, num_heads=2, num_layers=1, patch_size=8)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # an untrained painter's last layers are zero: it paints grey
    return widgets.TextToImage.of(model, vocab, caption)


STORY = [["start", "A", 5], ["fork", "A", "B"], ["grow", "B"], ["decode"], ["end", "A"]]
SAMPLES = {
    "AttentionHeatmap": Sample(
        heatmap,
        {"layer": 1, "head": 2, "row": 3},
        60_000,
        "AttentionHeatmap(layers=2, heads=3, target=4, source=5)",
        dict.fromkeys(("layer", "head", "row"), (*NOT_WHOLE, 4)),
        ("title",),
    ),
    "AttentionPatternExplorer": Sample(
        lambda **changes: widgets.AttentionPatternExplorer(**changes),
        {"pattern": "hash", "n": 90, "rounds": 3, "query": 80},
        110_000,
        "AttentionPatternExplorer('window', n=64)",
        dict.fromkeys(
            "n window dilation global_tokens num_buckets bucket_size rounds slots seed query".split(), NOT_WHOLE
        )
        | {"pattern": ("ring", *NOT_WHOLE), "causal": (1, *[one for one in NOT_WHOLE if one is not True])},
    ),
    "KernelSmoother": Sample(
        smoother,
        {"bandwidth": 2.0, "query": 3.0},
        60_000,
        "KernelSmoother(points=4, bandwidth=1, query=5)",
        dict.fromkeys(("x", "y"), NO_ROW) | {"bandwidth": (*NOT_REAL, 60.0), "query": (*NOT_REAL, 60.0)},
        ("x_label", "y_label"),
    ),
    "MaskedWordExplorer": Sample(
        masked_word,
        {"sentence": 1, "position": 2, "layer": 1, "head": 2, "guesses": [[0, 1, "a"]]},
        60_000,
        "MaskedWordExplorer(sentences=2, words=4, layers=2, heads=3)",
        dict.fromkeys(("sentence", "position", "layer", "head"), (*NOT_WHOLE, 9))
        | {"guesses": (["cat"], [3], [[0, 1]], [[0, 0, "a"]], [[2, 1, "a"]], [[0, 1, "a"], [0, 1, "b"]])},
    ),
    "OnlineSoftmaxStepper": Sample(
        stepper,
        {"values": [0.0, 1.0, 0.0, 2.0], "tile": 1, "step": 4},
        80_000,
        "OnlineSoftmaxStepper(scores=4, tile=2, step=2)",
        dict.fromkeys(("scores", "values"), NO_ROW) | dict.fromkeys(("tile", "step"), (*NOT_WHOLE, 5)),
    ),
    "PagedCacheExplorer": Sample(
        lambda **changes: widgets.PagedCacheExplorer(**{"events": STORY, **changes}),
        {"events": STORY[:3], "reserve": 9, "step": 2},
        60_000,
        "PagedCacheExplorer(block_size=4, num_blocks=24, events=5, step=5)",
        dict.fromkeys(("block_size", "num_blocks", "reserve", "step"), (*NOT_WHOLE, 10**9))
        | {"events": ("decode", 5, ["decode"], [[["decode"]]], [["jump"]])},
    ),
    "PatchAttentionExplorer": Sample(
        patches,
        {"image": 1, "layer": 1, "head": 1, "query": 1},
        80_000,
        "PatchAttentionExplorer(images=2, layers=2, heads=2, patches=9)",
        dict.fromkeys(("image", "layer", "head", "query"), (*NOT_WHOLE, 2)),
        ("title",),
    ),
    "PositionalEncodingExplorer": Sample(
        lambda **changes: widgets.PositionalEncodingExplorer(**changes),
        {"dim": 64, "length": 100, "position": 99, "column": 63, "offset": -99, "base": 2.5},
        100_000,
        "PositionalEncodingExplorer(dim=32, length=64, base=10000)",
        dict.fromkeys(("dim", "length", "position", "column", "offset"), NOT_WHOLE) | {"base": NOT_REAL},
    ),
    "Quiz": Sample(
        quiz,
        {"questions": quiz("Who?").questions},
        40_000,
        "Quiz(questions=1)",
        {"questions": ([], {}, "which?", None, 3)},
        ("question",),
    ),
    "TextToImage": Sample(
        painter,
        {"caption": "a blue ring"},
        120_000,
        "TextToImage(words=8, dim=8, layers=1)",
        {"caption": ("the ring", "a <bos>", "  ", " ".join(["a"] * 13), ["a"], None)},
    ),
    "Translator": Sample(
        translator,
        {"sentence": "cat ."},
        200_000,
        "Translator(kind='bahdanau', source=8, target=8)",
        {"sentence": ("the zebra", "the <eos>", "  ", ["the"], None)},
    ),
}
each_kind = pytest.mark.parametrize("kind", SAMPLES)


def state(widget):
    return {name: getattr(widget, name) for name in widget.trait_names(static=True)}


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


@pytest.mark.parametrize("content", [b"", b"{questions}", b'["\xff"]', b"[" * 100_000 + b"]" * 100_000, None, 7])
def test_a_file_that_is_no_json_is_refused(tmp_path, content):
    path = tmp_path / "a.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    for load in (widgets.Quiz.load, widgets.TextToImage.load, widgets.Translator.load):
        with pytest.raises(
            FileNotFoundError if content is None else ValueError, match="path: expected|a.json"
        ) as caught:
            load(7 if content == 7 else path)
        assert len(str(caught.value)) < 150 + len(str(path))


def test_the_table_has_every_widget():
    own = [kind for kind in StaticWidget.__subclasses__() if kind.__module__.startswith("attn_book.")]
    own = [
        kind for kind in own if kind.__name__ != "StaticWidget"
    ]  # adding a trait to a widget makes it a class of its own
    assert {kind.__name__ for kind in own} == set(SAMPLES) == {*widgets.__all__} - {"StaticWidget"}
    assert all(set(kind._said) <= set(kind.class_trait_names(static=True)) for kind in own)
    with pytest.raises(ValueError, match=r"^StaticWidget: expected a method picture\(\)"):
        StaticWidget.picture(StaticWidget())


@each_kind
def test_its_state_is_plain_synced_observed_and_linked(kind):
    make, changes, *_ = SAMPLES[kind]
    one, two, seen = make(), make(), []
    assert {"_esm", "_css", *state(one)} <= set(one.get_state())
    assert json.loads(json.dumps(state(one), allow_nan=False)) == state(one)
    name = next(iter(changes))
    one.observe(lambda change: seen.append(change.new), name)
    link = ipywidgets.link((one, name), (two, name))
    one.set_state(json.loads(json.dumps(changes)))  # as a page sends it
    assert {key: getattr(one, key) for key in changes} == changes
    assert seen[-1:] == [changes[name]] and getattr(two, name) == changes[name]
    link.unlink()
    again = make()
    again.set_state(json.loads(json.dumps({key: value for key, value in state(one).items() if key in changes})))
    assert state(again) == state(one)


@each_kind
def test_html_stands_alone_is_stable_and_small(kind):
    make, changes, size, said, *_ = SAMPLES[kind]
    torch.manual_seed(0)
    widget = make()
    text, before = widget.static_html(), state(widget)
    assert text == widget.static_html() and len(text) < size
    (held,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert json.loads(held) == state(widget)
    tags = Tags(text).tags
    assert [tag for tag, _ in tags] == ["div", "style", "div", "img", "script", "script"]
    for _, attributes in tags:
        assert not [name for name in attributes if name.startswith("on") or name == "href"]
        assert attributes.get("src", "data:").startswith("data:")
    # Less comments, data, and the names of HTML and SVG, which nothing fetches.
    assert not re.search(r"//\w", re.sub(r"\s// .*|base64,[^\"]*|>\{\".*|http://www\.w3\.org/\$\{space\}", "", text))
    data, _ = widget._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/html", "image/png", "text/plain"}
    assert data["text/plain"] == repr(widget) == said and data["text/html"] == text
    assert Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).format == "PNG" and data["image/png"] in text
    widget.set_state(changes)
    assert widget.static_html() != text
    widget.set_state({name: before[name] for name in changes})
    assert widget.static_html() == text


@each_kind
def test_the_picture_follows_the_state_and_leaves_what_matplotlib_is_set_to(kind):
    make, changes, *_ = SAMPLES[kind]
    widget, before = make(), matplotlib.rcParams.copy()
    first, said = widget.picture(), widget.describe()
    assert len(first) < 60_000
    widget.set_state(changes)
    assert widget.picture() != first and widget.describe() != said
    assert matplotlib.rcParams == before and not plt.get_fignums()


BUMPS = [math.exp(-((5 - x) ** 2) / 2) for x in (0, 1, 3, 10)]
ROW = torch.tensor([2, 1, 3, 0.5]).softmax(0) @ torch.tensor([1.0, -2, 4, 8])
OMEGA = 10_000 ** (-6 / 32)
# Numbers in the sentence about each sample, computed here.
TOLD = {
    "AttentionHeatmap": [f"le → {'the black cat . <eos>'.split()[int(torch.arange(5.0).sin().argmax())]},"],
    "AttentionPatternExplorer": [f"{64 * 9 - 2 * (4 + 3 + 2 + 1)} pairs are read", "query 32 reads 9"],
    "KernelSmoother": [f"average is {sum(b * y for b, y in zip(BUMPS, (2, -1, 4, 0), strict=True)) / sum(BUMPS):.4g}"],
    "MaskedWordExplorer": ["a 50 %", "the true word is the, rank 2, 25 %", "cat 20 %"],
    "OnlineSoftmaxStepper": [f"output {ROW:.4g}"],
    "PagedCacheExplorer": ["B, 7 tokens, has blocks 0, 2", "7 of their 8 slots"],
    "PatchAttentionExplorer": [f"row 2, column 2 ({100 * torch.arange(9.0).softmax(0)[8]:.1f} %)"],
    "PositionalEncodingExplorer": [f"PE[10, 6] = {math.sin(10 * OMEGA):.3f}", f"offset of 7 by {7 * OMEGA:.3f} rad"],
    "Quiz": ["1. Which scale?"],
    "TextToImage": ["caption: a ring", "after 0, 10, 20 steps"],
    "Translator": ["sentence: the cat ."],
}


@each_kind
def test_the_sentence_about_the_picture_has_the_right_numbers(kind):
    said = SAMPLES[kind].make().describe()
    assert [text for text in TOLD[kind] if text.lower() not in said.lower()] == []


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, one in SAMPLES.items() for name in one.texts])
def test_text_cannot_become_markup(kind, name):
    text = SAMPLES[kind].make(**{name: EVIL}).static_html()
    tags = Tags(text).tags
    assert [tag for tag, _ in tags] == ["div", "style", "div", "img", "script", "script"]
    assert "onerror" not in "".join(key for _, attributes in tags for key in attributes)
    (held,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert EVIL in json.dumps(json.loads(held), ensure_ascii=False).replace("\\\\", "\\").replace('\\"', '"')


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, one in SAMPLES.items() for name in one.refused])
def test_what_does_not_fit_is_refused_by_its_name_and_changes_nothing(kind, name):
    make, changes, *_, refused, _ = SAMPLES[kind]
    widget = make()
    before = state(widget)
    other = next((key for key in changes if key != name), None)
    attempts = [lambda value: setattr(widget, name, value)]
    attempts += [lambda value: widget.set_state({other: changes[other], name: value})] if other else []
    for value in refused[name]:
        for attempt in attempts:
            with pytest.raises(ValueError, match=rf"^{name}\S*: expected "):
                attempt(value)
            assert state(widget) == before, value
        if value is not None and name in inspect.signature(type(widget).__init__).parameters:
            with pytest.raises(ValueError, match=f"^{name}: expected "):
                make(**{name: value})


@pytest.mark.parametrize("kind", ["AttentionPatternExplorer", "OnlineSoftmaxStepper", "PositionalEncodingExplorer"])
def test_numbers_of_numpy_and_torch_become_plain(kind):
    make, changes, *_ = SAMPLES[kind]
    given = {name: np.asarray(value)[()] if k % 2 else torch.tensor(value) for k, (name, value) in
             enumerate(changes.items()) if not isinstance(value, str)}  # fmt: skip
    widget = make(**given)
    assert all(type(value) in (int, float, str, bool, list) for value in state(widget).values())
