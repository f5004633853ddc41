"""The explorer of masked words in a page: a reader's guess, the model's, the attention from the blank, its keys."""

import numpy as np
import pytest
import torch

from attn_book.widgets.masked_word import MaskedWordExplorer
from tests.browser.page import choose, press, read, texts

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


def explorer(**options):
    return MaskedWordExplorer(SENTENCES, PREDICTIONS, WEIGHTS, **options)


def hide(page, place):
    page.locator(f"[data-place='{place}']").click()


def say(page, guess):
    page.locator("input[name=guess]").fill(guess)
    page.locator("input[name=guess]").press("Enter")


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
)  # fmt: skip
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


def test_a_look_without_a_guess_is_not_counted(live):
    with live(explorer(position=3)) as page:
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


def test_the_next_word_is_one_that_was_not_seen(live):
    with live(explorer(position=3)) as page:
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
