"""All that the widgets say can be translated: it goes through `say`, in whole sentences that a catalogue can hold."""

import re

import numpy as np
import pytest
import torch

from attn_book import widgets
from attn_book.widgets import (
    AttentionHeatmap,
    OnlineSoftmaxStepper,
    PatchAttentionExplorer,
    PositionalEncodingExplorer,
    Quiz,
    StaticWidget,
)
from tests.widgets.said import SCRIPTS, catalogue, extracted, literals, say_calls

each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
WORD = re.compile(r"[^\W\d_]{2,}")
# From which argument on a call puts text into the page; for `text`, which draws, that argument alone.
SHOWN_FROM = {
    "append": 0, "prepend": 0, "replaceChildren": 0, "createTextNode": 0, "fillText": 0, "strokeText": 0, "button": 0,
    "part": 1, "span": 1, "make": 2, "text": 2,
}  # fmt: skip
SHOWN_AS = {"textContent", "innerText", "ariaLabel", "title", "placeholder", "alt"}
SPOKEN_AS = {f"aria-{name}" for name in ("label", "valuetext", "description", "roledescription", "placeholder")}
# What holds words and is no text for the reader: media, styles, selectors and classes; mathematics; and, to be typed,
# sentences in the model's language.
EXCEPTIONS = {
    "(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)", "rgb(${} / ${})", "max(9px, ${}%)",
    "[data-block], [data-name]", "slot ${} ${}", "max(${}) = ", "eˣ⁻ᵐ",
    "does the queen often read these letters ?", "is the basket that this lazy man buys blue ?",
    "the owl drank the soup because it was hot .",
}  # fmt: skip


def faults(script):
    """The literals that look as if a reader could see them, and are not said, each with its line."""
    found = []
    for literal in literals(script):
        text = literal.text.replace("${}", "")
        said = literal.call in ("expect", "Error") or (literal.call == "say" and literal.place == 0)
        # Names of classes begin with attn-; what `expect` refuses is told to developers, in the console.
        if said or not WORD.search(text) or "attn-" in text or literal.text in EXCEPTIONS:
            continue
        *_, name, sign = ("", "", *literal.before)
        first = SHOWN_FROM.get(literal.call)
        shown = first is not None and (literal.place == first if literal.call == "text" else literal.place >= first)
        given = sign == "=" and name in SHOWN_AS or sign in (",", ":") and name in SPOKEN_AS | SHOWN_AS
        if literal.in_table or shown and literal.alone or given or re.search(r"\s", text):
            found.append(f"{literal.line}: {literal.text}")
    return found


@each_script
def test_what_a_reader_can_see_is_said(path):
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "script",
    [
        'read.textContent = "Next";',
        'e.setAttribute("aria-label", "layer");',
        'const made = { "aria-label": `head ${head}` };',
        'box.append(span("name"), "Layer");',
        'make("span", { class: "attn-x" }, "Layer");',
        'text(1, 2, "query", "end");',
        'const TEXT = { inner: { one: say("One"), two: "Two" } };',
        "const said = (k) => `${k} others ${list(k.map((x) => `${x}`))}`;",
        "const also = [`${more.map(() => `a word`)}`];",
        "const a = 'in quotes of the other kind';",
        'say(`a {b}`, { b: "in a value" });',
    ],
)
def test_what_is_not_said_is_found(script):
    assert len(faults(script)) == 1


def test_names_and_marks_are_not_taken_for_text():
    script = """
      const TEXT = { title: say("A title"), of: (n) => say("{n} of all", { n }), mark: "–" }; // a comment "with words"
      const kind = `attn-one ${name} attn-two`; const path = `M${x} 0L${y}`; const plain = /"a word"|[/] b/g;
      make("div", { class: "attn-x", role: "group" }, say("Text"), "→"); list.querySelector(".attn-a .attn-b");
    """
    assert faults(script) == []


@each_script
def test_babel_extracts_all_that_is_said(path):
    script = path.read_text(encoding="utf-8")
    said = {text for text in say_calls(script) if isinstance(text, str)}
    assert extracted(script) == said
    assert all(text == text.strip() and "${" not in text and not re.search(r"[{}]", re.sub(r"\{\w+\}", "", text))
               for text in said)  # fmt: skip


def test_only_traits_are_said_without_being_written():
    found = {(path.name, one) for path in SCRIPTS for one in say_calls(path.read_text(encoding="utf-8"))}
    assert {(name, one) for name, one in found if not isinstance(one, str)} == {
        ("heatmap.js", ("name",)),
        ("heatmap.js", ("model", ".", "get", "(", "title", ")")),
        ("kernel_smoother.js", ("s", ".", "x_label")),
        ("kernel_smoother.js", ("s", ".", "y_label")),
        ("patch_attention.js", ("text",)),
        ("patch_attention.js", ("model", ".", "get", "(", "title", ")")),
        ("quiz.js", ("text",)),
    }


def test_the_catalogue_holds_whole_sentences():
    messages = catalogue(str)
    assert len(messages) > 250
    assert {
        "You: {you} of {all} right. The model: {model} of {all}.",
        "key →",
        "ω·δ = {omega} · {delta} = {angle} rad ({size}°).",
        "{used} of {reserved} reserved slots hold a token: {share}\u00a0%.",
    } <= set(messages)
    assert [text for text in messages if not text or text[0] in ",;:)"] == []


def test_a_widget_tells_the_prose_in_its_state():
    weights = torch.full((2, 3), 0.5)
    maps = {"Looking up": weights, "0": weights, "Looking on": weights}
    heatmap = AttentionHeatmap({name: [one[None, None]] for name, one in maps.items()}, "a b c".split(), "d e".split(),
                               title="Looking on")  # fmt: skip
    assert heatmap.said() == ["Looking on", "Looking up"], "each once, and none without a letter"
    picture = np.zeros((1, 4, 4, 3))
    patches = PatchAttentionExplorer(picture, [[[0.5, 0.5, 0, 0]]], patch_size=2, queries=[["word"]], answers=["Yes."])
    assert patches.said() == ["Attention over patches", "Yes."]
    options = [{"text": text, "right": text == "a", "why": f"So {text}."} for text in "ab"]
    assert Quiz([{"question": "Which?", "options": options}]).said() == ["Which?", "a", "So a.", "b", "So b."]
    assert OnlineSoftmaxStepper().said() == PositionalEncodingExplorer().said() == []


def test_what_holds_prose_is_part_of_the_page():
    public = [getattr(widgets, name) for name in widgets.__all__]
    kinds = [kind for kind in public if issubclass(kind, StaticWidget) and kind is not StaticWidget]
    assert len(kinds) == 10
    for kind in kinds:
        assert set(kind._said) <= set(kind.class_trait_names(static=True))
