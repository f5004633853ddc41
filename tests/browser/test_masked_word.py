"""The explorer of masked words in a page: a reader's guess, the model's, the attention from the blank, its looks."""

import json
import re
from contextlib import contextmanager
from importlib import resources

import numpy as np
import pytest
import torch

from attn_book.widgets.masked_word import MaskedWordExplorer

pytestmark = pytest.mark.browser

SENTENCES = ["<cls> the Cat sleeps . <sep>".split(), "<cls> les élèves <b>&\"x' lisent </script> . <sep>".split()]
RIGHT = ([("Cat", 0.6), ("dog", 0.2), ("cow", 0.1), ("ant", 0.05), ("bee", 0.003)], 1, 0.6)
WRONG = ([("eats", 0.5), ("runs", 0.25), ("is", 0.125), ("sits", 0.06), ("sleeps", 0.05)], 5, 0.05)
ABSENT = ([("!", 0.996), ("?", 0.004)], 17, 0.00001)
PUPILS = ([("élèves", 0.9), ("zèbres", 0.1)], 1, 0.9)
MARKUP = ([("a", 0.75), ("<b>&\"x'", 0.25)], 2, 0.25)
PREDICTIONS = [
    [None, None, RIGHT, WRONG, ABSENT, None],
    [None, None, PUPILS, MARKUP, None, (MARKUP[0], 9, 0.001), None, None],
]
WEIGHTS = [torch.randn(n, 2, 3, n, generator=torch.Generator().manual_seed(n)).mul(2).softmax(-1) for n in (6, 8)]
MODEL = """
  window.state = STATE;
  window.told = [];
  const on = [];
  const model = {
    get: (name) => state[name],
    set(name, value) {
      state[name] = value;
      on.filter(([event]) => event === 'change:' + name).forEach(([, f]) => f());
    },
    save_changes: () => told.push({...state}),
    on: (event, f) => on.push([event, f]),
    off: (event, f) => on.splice(on.findIndex(([e, g]) => e === event && g === f), 1),
  };
  window.model = model;
  window.listening = on;
  window.stop = widget.render({ model, el: document.querySelector('#here') });
"""


def explorer(**options):
    return MaskedWordExplorer(SENTENCES, PREDICTIONS, WEIGHTS, **options)


@contextmanager
def live(show, widget):
    """The widget beside a model that can be asked what it holds, as with a kernel."""
    state = {name: getattr(widget, name) for name in widget.trait_names(static=True)}
    script = str(widget._esm).replace("export default", "const widget =")
    with show(f'<style>{widget._css}</style><div id="here"></div><script>{script}</script>') as page:
        page.add_script_tag(content=MODEL.replace("STATE", json.dumps(state).replace("<", "\\u003c")))
        yield page


def texts(page, selector):
    return [text.replace("\u00a0", " ") for text in page.locator(selector).locator("visible=true").all_inner_texts()]


def read(page):
    return page.locator(".attn-read").inner_text()


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def hide(page, place):
    page.locator(f"[data-place='{place}']").click()


def choose(page, name, value):
    page.locator(f"input[name={name}][value='{value}']").check()


def say(page, guess):
    page.locator("input[name=guess]").fill(guess)
    page.locator("input[name=guess]").press("Enter")


def focused(page):
    return page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent")


def test_before_the_guess_nothing_is_given_away(show):
    with show(explorer().static_html()) as page:
        assert texts(page, ".attn-token") == SENTENCES[0] and read(page).startswith("Choose a word to hide")
        assert page.locator("[data-place]").evaluate_all("all => all.map((e) => +e.dataset.place)") == [2, 3, 4]
        for place, offered in [(2, ["ant", "Cat", "cow", "dog"]), (3, ["eats", "is", "runs", "sits", "sleeps"])]:
            hide(page, place)
            assert read(page).startswith("Which word is hidden?")
            assert texts(page, ".attn-token") == [t if i != place else "____" for i, t in enumerate(SENTENCES[0])]
            assert texts(page, ".attn-options button") == offered
            assert page.locator(f"[data-place='{place}']").get_attribute("aria-pressed") == "true"
            shown = page.locator(".attn-card").inner_text()
            assert "%" not in shown and "true word" not in shown and texts(page, ".attn-bars, .attn-attention") == []
            assert page.locator(".attn-word[style]").count() == 0, "no shade"
        hide(page, 3)
        assert texts(page, ".attn-token") == SENTENCES[0], "a second click brings the word back"
        assert texts(page, ".attn-asking") == []


@pytest.mark.parametrize(
    ("sentence", "place", "guess", "verdict", "tally"),
    [
        (0, 2, "Cat", "You and the model are both right.", (1, 1)),
        (0, 2, "  cAT ", "You and the model are both right.", (1, 1)),
        (0, 2, "catt", "The model is right; you say “catt”.", (0, 1)),
        (0, 3, "sleeps", "You are right; the model says “eats”.", (1, 0)),
        (0, 3, "eats", "Neither is right: you say “eats”, the model “eats”.", (0, 0)),
        (1, 2, "e\u0301le\u0300ves", "You and the model are both right.", (1, 1)),
        (1, 3, "<b>&\"x'", "You are right; the model says “a”.", (1, 0)),
        (1, 5, "<img src=x onerror=alert(1)>", "you say “<img src=x onerror=aler…”, the model “a”.", (0, 0)),
    ],
)
def test_a_guess_is_judged_and_counted(show, sentence, place, guess, verdict, tally):
    with show(explorer(sentence=sentence).static_html()) as page:
        assert texts(page, ".attn-tally") == []
        hide(page, place)
        say(page, guess)
        assert read(page).startswith(f"The hidden word is “{SENTENCES[sentence][place]}”. ") and verdict in read(page)
        assert texts(page, ".attn-tally") == [f"You: {tally[0]} of 1 right. The model: {tally[1]} of 1."]
        assert texts(page, ".attn-token") == SENTENCES[sentence]


def bars(page):
    """Each bar's word, marks, figure, and length as a share of its room."""
    return page.locator(".attn-bars li").evaluate_all(
        """all => all.map((e) => [e.querySelector('.attn-candidate').firstChild.textContent,
             [...e.querySelectorAll('.attn-tag')].map((tag) => tag.textContent),
             e.querySelector('.attn-value').innerText,
             e.querySelector('.attn-fill').getBoundingClientRect().width /
               e.querySelector('.attn-room').getBoundingClientRect().width])"""
    )


def test_the_models_candidates_are_drawn_and_the_true_word_is_marked(show):
    truth, yours = "✓ true word", "your guess"
    with show(explorer().static_html()) as page:
        hide(page, 2)
        page.locator(".attn-options button", has_text="dog").click()
        found = bars(page)
        assert [row[:2] for row in found] == [["Cat", [truth]], ["dog", [yours]], ["cow", []], ["ant", []], ["bee", []]]
        assert [row[2] for row in found] == [f"{share}\u00a0%" for share in ("60", "20", "10", "5", "<1")]
        np.testing.assert_allclose([row[3] for row in found], [share for _, share in RIGHT[0]], atol=0.004)
        assert texts(page, ".attn-told .attn-note") == []
        weights = page.locator(".attn-candidate").evaluate_all("all => all.map((e) => getComputedStyle(e).fontWeight)")
        assert weights == ["700", "400", "400", "400", "400"]
        hide(page, 4)
        say(page, "?")
        assert [row[:3] for row in bars(page)] == [
            ["!", [], ">99\u00a0%"], ["?", [yours], "<1\u00a0%"], [".", [truth, "rank 17"], "<1\u00a0%"]
        ]  # fmt: skip
        hide(page, 3)
        say(page, "snores")
        assert texts(page, ".attn-told .attn-note") == ["“snores” is not among the model’s first 5."]
        assert texts(page, ".attn-tally") == ["You: 0 of 3 right. The model: 1 of 3."]


def test_a_look_without_a_guess_is_not_counted(show):
    with live(show, explorer(position=3)) as page:
        press(page, "Show without guessing")
        assert read(page) == "The hidden word is “sleeps”. The model says “eats”." and texts(page, ".attn-tally") == []
        hide(page, 2)
        press(page, "Show without guessing")
        assert read(page) == "The hidden word is “Cat”. The model is right."
        assert page.evaluate("state.guesses") == [[0, 3, None], [0, 2, None]]
        hide(page, 3)
        assert texts(page, ".attn-asking") == [] and len(bars(page)) == 5, "what was shown stays so"


def looks(page):
    """Each token's figure, share of the shade, and length of the line as a share of its greatest."""
    return page.locator(".attn-word").evaluate_all(
        """all => all.map((e) => {
             const line = e.querySelector('.attn-line').getBoundingClientRect().width;
             const style = getComputedStyle(e);
             const inner = e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
             const shade = style.backgroundColor.match(/[\\d.]+/g)[3] ?? 1;
             return [e.querySelector('.attn-weight').innerText, shade, line / inner];
           })"""
    )


@pytest.mark.parametrize(("sentence", "place"), [(0, 2), (0, 4), (1, 2), (1, 5)])
def test_the_words_show_the_attention_of_the_layer_and_head(show, sentence, place):
    weights = WEIGHTS[sentence][place].double().numpy()
    with show(explorer(sentence=sentence, position=place).static_html()) as page:
        press(page, "Show without guessing")
        assert texts(page, ".attn-attention .attn-chooser") == ["layer\nmean\n0\n1"]
        meant = {(-1, -1): ("mean of all heads", weights.mean((0, 1)))}
        meant[1, -1] = ("layer 1, mean of its heads", weights[1].mean(0))
        meant.update({(k, h): (f"layer {k}, head {h}", weights[k, h]) for k, h in np.ndindex(2, 3)})
        for (layer, head), (named, expected) in meant.items():
            choose(page, "layer", layer)
            if layer >= 0:
                choose(page, "head", head)
            for (figure, shade, line), weight in zip(looks(page), expected, strict=True):
                low, high = (0, 0.7) if figure[0] == "<" else [float(figure[:-2]) + by for by in (-0.7, 0.7)]
                assert low <= 100 * weight <= high
                assert float(shade) == pytest.approx(0.42 * weight / expected.max(), abs=0.02)
                assert line == pytest.approx(weight / expected.max(), abs=0.04)
            tokens = [t if i != place else "____" for i, t in enumerate(SENTENCES[sentence])]
            note = texts(page, ".attn-attention .attn-note")[0]
            assert f"Attention from the blank, {named}: most to “{tokens[expected.argmax()]}” (" in note
            assert page.locator("[data-place='2']").get_attribute("aria-label").endswith(looks(page)[2][0])


def test_where_there_is_one_layer_head_or_sentence_there_is_no_choice(show):
    widget = MaskedWordExplorer(SENTENCES[:1], PREDICTIONS[:1], [WEIGHTS[0][:, 1:, :1]], position=2)
    with show(widget.static_html()) as page:
        press(page, "Show without guessing")
        assert texts(page, ".attn-chooser") == [] and "layer 0, head 0" in texts(page, ".attn-attention .attn-note")[0]
    widget = MaskedWordExplorer(SENTENCES, PREDICTIONS, [array[:, :1] for array in WEIGHTS], position=2)
    with show(widget.static_html()) as page:
        press(page, "Show without guessing")
        assert texts(page, ".attn-chooser") == ["sentence\n1\n2", "head\nmean\n0\n1\n2"]


def test_the_next_word_is_one_that_was_not_seen(show):
    with live(show, explorer(position=3)) as page:
        seen = []
        for _ in range(6):
            seen.append(page.evaluate("[state.sentence, state.position]"))
            press(page, "Show without guessing")
            press(page, "Next word") if len(seen) < 6 else None
        assert seen == [[0, 3], [0, 4], [1, 2], [1, 3], [1, 5], [0, 2]]
        assert page.get_by_role("button", name="Next word").get_attribute("aria-disabled") == "true"
        page.get_by_role("button", name="Next word").click(force=True)
        assert read(page) == "The hidden word is “Cat”. The model is right."
        press(page, "Start over")
        assert page.evaluate("[state.guesses, state.position]") == [[], -1] and texts(page, ".attn-tally") == []
        assert page.get_by_role("button", name="Start over").get_attribute("aria-disabled") == "true"
        choose(page, "sentence", 1)
        assert texts(page, ".attn-token") == SENTENCES[1]
        press(page, "Next word")
        press(page, "Next word")
        assert page.evaluate("[state.sentence, state.position]") == [1, 3], "a word may be left for later"


def test_keys_do_all_that_a_pointer_does(show):
    with show(explorer().static_html()) as page:
        for key in ("Tab", "Tab"):
            page.keyboard.press(key)
        assert focused(page) == "Cat"
        for key, word in [("ArrowRight", "sleeps"), ("End", "."), ("ArrowRight", "."), ("Home", "Cat")]:
            page.keyboard.press(key)
            assert focused(page) == word
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        assert focused(page) == "hidden word, 4 of 6"
        page.keyboard.press("Space")
        assert focused(page) == "sleeps"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.keyboard.type("  ")
        page.keyboard.press("Enter")
        assert read(page).startswith("Which word is hidden?"), "nothing is no guess"
        page.keyboard.type("sleeps")
        page.keyboard.press("Enter")
        assert "You are right" in read(page) and focused(page) == "Next word", "the focus goes on"
        page.keyboard.press("Enter")
        assert focused(page) == "hidden word, 5 of 6"
        for _ in range(3):
            page.keyboard.press("Tab")
        assert focused(page) == "!"
        page.keyboard.press("Enter")
        assert read(page) == "The hidden word is “.”. Neither is right: you say “!”, the model “!”."
        assert page.locator("input[name=guess]").input_value() == ""
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("ArrowRight")
        assert "layer 0, mean of its heads" in texts(page, ".attn-attention .attn-note")[0]
        page.keyboard.press("Shift+Tab")
        assert focused(page).startswith("., the hidden word, attention ")


def test_a_kernel_hears_each_guess_once_and_is_drawn_once(show):
    widget = explorer()
    with live(show, widget) as page:
        hide(page, 3)
        say(page, "runs")
        assert [change["guesses"] for change in page.evaluate("told")] == [[], [[0, 3, "runs"]]]
        for sent in page.evaluate("told"):
            widget.set_state({name: sent[name] for name in ("sentence", "position", "layer", "head", "guesses")})
        assert (widget.position, widget.guesses) == (3, [[0, 3, "runs"]])
        page.evaluate("() => { model.set('sentence', 1); model.set('position', 2); model.set('layer', 1); }")
        page.wait_for_function("document.querySelector('.attn-blank').textContent === '____'")
        assert texts(page, ".attn-token") == [t if i != 2 else "____" for i, t in enumerate(SENTENCES[1])]
        page.evaluate("() => model.set('guesses', [[1, 2, 'x']])")
        page.wait_for_function("document.querySelector('.attn-read').textContent.includes('élèves')")
        assert "layer 1" in texts(page, ".attn-attention .attn-note")[0]
        assert page.evaluate("[listening.length > 0, (stop(), listening.length), here.children.length]") == [True, 0, 0]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_fault(show, theme):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    axe = (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")
    with show(f"<main><h1>t</h1>{explorer().static_html()}</main>", theme=theme) as page:
        page.evaluate(axe)
        for step in (lambda: None, lambda: hide(page, 3), lambda: say(page, "runs"), lambda: choose(page, "layer", 1)):
            step()
            rules = {"target-size": {"enabled": True}}
            found = page.evaluate("rules => axe.run('html', {rules}).then((found) => found.violations)", rules)
            assert not found, [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


def luminance(parts):
    parts = np.asarray(parts) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_the_darkest_shade(show, theme):
    with show(explorer(position=3).static_html(), theme=theme) as page:
        press(page, "Show without guessing")

        def value(selector, part):
            colour = page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{part}")
            return np.array([float(one) for one in re.findall(r"[\d.]+", colour)])

        paper = value(".attn-card", "backgroundColor")
        assert (luminance(paper) < 0.1) == (theme == "dark")
        shade = value(".attn-word[style='--attn-share: 1;']", "backgroundColor")
        ground = shade[3] * shade[:3] + (1 - shade[3]) * paper
        for part in (".attn-token", ".attn-weight", ".attn-line"):
            name = "backgroundColor" if part == ".attn-line" else "color"
            low, high = sorted((luminance(value(f".attn-word {part}", name)), luminance(ground)))
            assert (high + 0.05) / (low + 0.05) >= (3 if part == ".attn-line" else 4.5), part


LONG = ["<cls>", *["internationalization" * 2] * 2, *"a b c d e f g h i j".split(), "W" * 40]


@pytest.mark.parametrize("media", ["screen", "print"])
def test_nothing_leaves_a_narrow_screen(show, media):
    count = len(LONG)
    said = [([(word * 2 if word == "a" else word + "x", 0.5), ("W" * 40 + "w", 0.4)], 2000, 0.001) for word in LONG]
    weights = torch.ones(count, 12, 12, count) / count
    widget = MaskedWordExplorer([LONG] * 12, [[None, *said[1:]]] * 12, [weights] * 12, position=1)
    html = widget.static_html()
    for width in (300, 320, 520, 700):
        with show(html, width=width) as page:
            for step in (
                lambda: None,
                lambda page=page: say(page, "V" * 60),
                lambda page=page: choose(page, "layer", 3),
            ):
                page.emulate_media(media="screen")
                step()
                page.emulate_media(media=media)
                assert page.evaluate("document.documentElement.scrollWidth") == width
                edge = page.locator(".attn-card").evaluate("e => e.getBoundingClientRect().right")
                inside = "all => all.map((e) => [e.className, e.getBoundingClientRect().right])"
                assert [one for one in page.locator(".attn-card *").evaluate_all(inside) if one[1] > edge - 5] == []


def test_follows_the_theme_and_prints_light_and_without_controls(show):
    with show(explorer(position=3).static_html()) as page:
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.wait_for_selector(".attn-card[data-theme=dark]")
        press(page, "Show without guessing")
        page.emulate_media(media="print")
        page.wait_for_selector(".attn-card[data-theme=light]")
        assert page.locator(".attn-card").evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator(".attn-button:visible, .attn-card input:visible").count() == 0
        assert len(texts(page, ".attn-weight")) == 6 and len(texts(page, ".attn-bars li")) == 5
        assert page.locator(".attn-card").evaluate("e => getComputedStyle(e).printColorAdjust") == "exact"
        page.emulate_media(media="screen")
        hide(page, 3)
        page.emulate_media(media="print")
        assert texts(page, ".attn-read") == [], "what tells how to use it is not printed"


def test_copies_on_a_page_are_independent(show):
    with show(explorer().static_html() * 2) as page:
        page.locator("input[name=sentence][value='1']").last.check()
        assert page.locator("input[name=sentence]:checked").evaluate_all("all => all.map((e) => e.value)") == ["0", "1"]
        page.get_by_role("button", name="Next word").last.click()
        assert page.locator(".attn-blank").count() == 1


def test_without_scripts_the_picture_stands(show, drawn):
    with show(explorer(position=2).static_html(), java_script_enabled=False) as page:
        image = page.locator(".attn-picture")
        assert image.is_visible() and image.bounding_box()["width"] > 100
        assert "<cls> the ____ sleeps . <sep> The model says: Cat 60 %" in image.get_attribute("alt")


def test_a_notebook_does_not_see_the_keys_that_walk_or_type(show):
    with show(explorer(position=2).static_html()) as page:
        page.evaluate("() => { window.seen = []; document.addEventListener('keydown', (e) => seen.push(e.key)); }")
        page.locator("[data-place='2']").focus()
        for key in ("ArrowRight", "End", "Escape"):
            page.keyboard.press(key)
        assert focused(page) == "." and page.evaluate("seen") == ["Escape"]
        page.locator("input[name=guess]").press_sequentially("dd0")
        assert page.evaluate("seen") == ["Escape"]
