"""All widgets by keyboard: where Tab stops, what keys do there, and that a notebook does not see them."""

import re

import pytest

from attn_book import widgets
from tests.browser import drawn, test_heatmap, test_masked_word, test_patch_attention, test_quiz
from tests.browser.walks import WALKS, sample

pytestmark = pytest.mark.browser

each_kind = pytest.mark.parametrize("kind", WALKS)
# What Tab reaches in a sample, one after another.
STOPS = {
    "AttentionHeatmap": ["[name=layer]", ".attn-gallery input", ".attn-cell"],
    "AttentionPatternExplorer": [
        *(f"[name={name}]" for name in ("pattern", "n", "num_buckets", "bucket_size", "rounds", "causal")),
        ".attn-cell",
        ".attn-acts button",
    ],
    "KernelSmoother": ["[name=bandwidth]", "[name=query]"],
    "MaskedWordExplorer": ["[name=sentence]", "[data-place]", ".attn-acts button", ".attn-acts button"],
    "OnlineSoftmaxStepper": [
        *(f"[name={name}]" for name in ("scores", "values", "tile", "step", "first", "back", "next", "last")),
        *["button:not([name])"] * 2,
    ],
    "PagedCacheExplorer": [
        *["button"] * 3,
        "[data-block]",
        "button",
        "[name=prompt]",
        "button",
        "[name=size]",
        "[name=reserve]",
    ],
    "PatchAttentionExplorer": [
        "[name=images]",
        "[name=queries]",
        ".attn-play",
        ".attn-cell",
        "[name=layer]",
        "[name=heads]",
    ],
    "PositionalEncodingExplorer": [
        *(f"[name={name}]" for name in ("dim", "length", "base")),
        ".attn-cell",
        *(f"[name={name}]" for name in ("position", "offset", "pair")),
    ],
    "Quiz": ["[name=choice]", "form button"] * 2,
    "TextToImage": [
        "[name=sentence]",
        *["button"] * 2,
        "[name=step]",
        *[".attn-look", "[name=factor]"] * 2,
        *(f"[name={name}]" for name in ("guidance", "seed", "block", "keep")),
    ],
    "Translator": ["[name=sentence]", *["button"] * 2, "[data-place]", "summary", "[name=view]", *["[name=head]"] * 2],
}
# For each kind: a widget, and the keys that a reader presses in it, in this place or where the focus is, with what has
# to be said then. Words between signs of quotation are typed.
KEYS = {
    "AttentionHeatmap": (
        lambda: test_heatmap.heatmap(head=1),
        [
            ("[name=layer]", "ArrowRight", "1, layer 1 of 0 to 2"),
            (".attn-gallery :checked", "ArrowRight", "^head 0 "),  # after the last comes the first
            (".attn-cell", "ArrowUp ArrowLeft", r"^le → the: 0\.35.* at 1, 1 .*le → the: 0\.35"),
            (None, "ArrowDown ArrowRight ArrowRight", r"^chat → cat: 0\.4[67].* at 2, 3 "),
            (None, "End ArrowRight", r"^chat → \.: .* at 2, 4 "),
            (None, "Home", "^chat → the: .* at 2, 1 "),
            (None, "Control+End", r"^noir → \.: .* at 3, 4 "),
            (None, "Control+Home", "^le → the: .* at 1, 1 "),
            (None, "Enter", "pressed: le;"),
            (None, "Escape", "pressed: ;"),
        ],
    ),
    "AttentionPatternExplorer": (
        lambda: widgets.AttentionPatternExplorer(n=30),
        [(".attn-cell", "ArrowDown", "^Query 16 .* at 17, .*Query 16 ")]
        + [
            (None, keys, f"^Query {row} .* at {row + 1}, .*Query {row} ")
            for keys, row in (("ArrowUp", 15), ("PageDown", 23), ("PageDown", 29), ("Home ArrowUp", 0))
        ]
        + [(None, "End ArrowDown", "^Query 29 "), (None, "PageUp", "^Query 21 ")],
    ),
    "KernelSmoother": (
        lambda: widgets.KernelSmoother([0, 10], [1, 2]),
        [("[name=query]", "End", "At the query 10"), ("[name=bandwidth]", "Home", r"1\.00 × 2")],
    ),
    "MaskedWordExplorer": (
        test_masked_word.explorer,
        [
            (None, "Tab Tab", "^Cat "),
            (None, "ArrowRight", "^sleeps "),
            (None, "End ArrowRight", r"^\. "),
            (None, "Home", "^Cat "),
            (None, "ArrowDown Enter", "^hidden word, 4 of 6 "),
            (None, "Space", "^sleeps "),
            (None, "Enter Tab Enter '  ' Enter", "Which word is hidden?"),
            (None, "'sleeps' Enter", "^Next word .*You are right"),
        ],
    ),
    "OnlineSoftmaxStepper": (
        lambda: widgets.OnlineSoftmaxStepper(step=0),
        [
            (place, keys, f"step={step};")
            for place in ("input[name=step]", "button[name=next]")
            for keys, step in (("ArrowRight", 1), ("End", 4), ("ArrowLeft", 3), ("Home", 0))
        ]
        + [
            (f"button[name={name}]", "Enter", f"step={step};")
            for name, step in (("next", 1), ("last", 4), ("back", 3), ("first", 0))
        ]
        + [("input[name=step]", "Home", "0 of 4")],
    ),
    "PagedCacheExplorer": (
        lambda: widgets.PagedCacheExplorer(step=7),
        [
            ("[data-block] >> nth=0", "ArrowRight", "block 1 .*on: 1,A,C;"),
            (None, "End ArrowRight", "block 23 .*on: 23;"),
            (None, "Home ArrowDown ArrowUp", "block 0 .*on: 0,A,C;"),
            (None, "Tab", r"^\+1 token for A .*on: 0,1,5,A;"),
            (None, "Enter", r"^\+1 token for A .*A: one token more"),
            ("[data-name=B] button >> nth=-1", "Enter", "^end C "),  # the row that took its place
            (None, "Enter Enter", "^New request "),
            ("button >> nth=0", "Enter", "^Back .*C ends"),
        ],
    ),
    "PatchAttentionExplorer": (
        lambda: test_patch_attention.captioner(layers=1, heads=1, query=2)[1],
        [(".attn-cell", "ArrowRight", r"patch 1 \(row 0, column 1\).* at 1, 2 .*patch 1 \(")]
        + [
            (None, keys, rf"patch {r} \(row {r // 6}, column {r % 6}\).* at {r // 6 + 1}, {r % 6 + 1} .*patch {r} \(")
            for keys, r in (("ArrowDown", 7), ("ArrowLeft", 6), ("ArrowUp", 0), ("End", 5), ("Control+End", 35))
        ]
        + [(None, "Home ArrowLeft", r"patch 30 \(")],
    ),
    "PositionalEncodingExplorer": (
        lambda: widgets.PositionalEncodingExplorer(dim=9, length=30),
        [(".attn-cell", "ArrowDown ArrowRight", r"^PE\[11, 7\] = .* at 12, 8 .*position=11;.*pair=3;")]
        + [
            (None, keys, rf"^PE\[{i}, {c}\] = .* at {i + 1}, {c + 1} .*position={i};.*pair={c // 2};")
            for keys, i, c in (
                ("ArrowUp ArrowUp ArrowLeft", 9, 6),
                ("PageDown PageDown", 29, 6),
                ("PageUp End ArrowRight", 19, 8),
                ("Control+Home ArrowLeft ArrowUp", 0, 0),
                ("Control+End", 29, 8),
                ("Home", 29, 0),
            )
        ],
    ),
    "Quiz": (
        lambda: widgets.Quiz(test_quiz.QUESTIONS),
        [
            (None, "Tab Space ArrowDown", "value=1;"),
            (None, "Tab", "^Commit "),
            (None, "Enter", "^Committed .*1 of 3 answered, 1 right"),
            (None, "Tab ArrowDown Tab Space", "^Committed .*2 of 3 answered, 1 right"),
            (None, "Tab Space Enter", "value=0;.*3 of 3 answered, 1 right"),  # Enter commits, and the focus stays
            (None, "Tab Tab Enter", "value=0;.*0 of 3 answered, 0 right"),
        ],
    ),
    "TextToImage": (
        lambda: sample("TextToImage"),
        [
            (".attn-look >> nth=1", "Enter", "^zbb, at most .*Bright patches attend to “zbb”"),
            (None, "Space", "^zbb, at most .*Press a word"),
            ("[name=guidance]", "ArrowRight", "^guidance .*guidance=2.5;"),
            ("[name=seed]", "End ArrowLeft", "^noise .*seed=39;"),
            ("[name=block]", "End", "^maps of .* block 2 .*block=2;"),
        ],
    ),
    "Translator": (
        lambda: sample("Translator"),
        [
            ("[data-place] >> nth=0", "ArrowDown", "place 1 "),
            (None, "End", "place [1-9]"),
            (None, "Home", "place 0 "),
            (None, "ArrowLeft Enter", "place 0 .*expanded"),
            (None, "Escape", "place 0 .*closed"),
        ],
    ),
}
SAID = """() => {
  const e = document.activeElement;
  const all = (selector) => [...document.querySelectorAll(selector)];
  const at = `${e.parentElement.ariaRowIndex}, ${e.getAttribute("aria-colindex")}`;
  const on = all(".attn-block.attn-on .attn-number, .attn-request.attn-on .attn-chip").map((one) => one.textContent);
  return [
    e.ariaLabel || e.name || e.textContent, `at ${at} value=${e.value};`, e.ariaValueText,
    `block ${e.dataset.block} place ${e.dataset.place}`, e.ariaExpanded === "true" ? "expanded" : "closed",
    ...all(".attn-read, .attn-bar output").map((one) => one.innerText),
    ...all("input").map((one) => `${one.name}=${one.value};`),
    `pressed: ${all("[aria-pressed=true]").map((one) => one.textContent)};`, `on: ${on};`,
  ].join(" ").replaceAll("\u00a0", " ").replaceAll("\\n", " ");
}"""


@each_kind
def test_keys_do_what_a_pointer_does(show, kind):
    make, steps = KEYS[kind]
    with show(make().static_html(), width=760, reduced_motion="reduce") as page:
        for place, keys, said in steps:
            if place:
                page.locator(place).focus()
            for key in re.findall(r"'[^']*'|\S+", keys):
                page.keyboard.type(key.strip("'")) if key[0] == "'" else page.keyboard.press(key)
            assert re.search(said, page.evaluate(SAID), re.DOTALL), (keys, page.evaluate(SAID))


@each_kind
def test_tab_reaches_every_control_and_shows_it(show, kind):
    shown = """() => [":focus", ":has(> :focus)", ":focus + *"].flatMap((at) => [...document.querySelectorAll(at)])
      .some((e) => getComputedStyle(e).outlineStyle === "solid" || getComputedStyle(e).boxShadow !== "none")"""
    with show(sample(kind).static_html()) as page:
        for at, stop in enumerate(STOPS[kind]):
            page.keyboard.press("Tab")
            here = page.evaluate("document.activeElement.outerHTML.slice(0, 150)")
            assert page.locator(f"{stop}:focus").count() == 1, (at, here)
            assert page.evaluate(shown), f"no sign of the focus: {here}"
            page.evaluate("at => { document.activeElement.dataset.seen ??= at; }", at)
            assert page.evaluate("document.activeElement.dataset.seen") == str(at), "reached twice"
        page.keyboard.press("Tab")  # leaves, or begins anew
        assert page.evaluate("document.activeElement.matches('body, [data-seen=\"0\"]')"), "there is another stop"


@each_kind
def test_a_notebook_does_not_see_the_keys_meant_for_a_widget(show, kind):
    with show(sample(kind).static_html(), reduced_motion="reduce") as page:
        page.evaluate("() => { window.seen = []; document.addEventListener('keydown', (e) => seen.push(e.key)); }")
        page.locator(drawn.USES[kind].click).first.click(force=True)
        for selector in {drawn.USES[kind].focus, *STOPS[kind]}:
            target = page.locator(f".attn-card :is({selector})").locator("visible=true").first
            if target.count():
                target.focus()
                for key in ("ArrowRight", "ArrowDown", "Home", "Control+ArrowUp"):
                    page.keyboard.press(key)
        assert set(page.evaluate("seen")) == {"Control", "ArrowUp"}
