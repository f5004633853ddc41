"""The quiz in a page: nothing is told before the reader commits, then the verdict and why; keys, paper."""

import re
from contextlib import contextmanager

import pytest

from attn_book.widgets.quiz import Quiz
from tests.browser.page import texts

pytestmark = pytest.mark.browser


def question(asked, *options, right):
    texts = [{"text": text, "right": k == right, "why": f"Because of {text}."} for k, text in enumerate(options)]
    return {"question": asked, "options": texts}


QUESTIONS = [
    question("Divide by what?", "`d`", "√d", "d²", right=1),
    question("Which mask?", "causal", "padding", right=0),
    question("How many heads?", "one", "two", "four", "eight", right=3),
]


def form(page, number):
    return page.locator(".attn-quiz form").nth(number)


def button(page, number):
    return form(page, number).get_by_role("button")


def choose(page, number, option):
    form(page, number).get_by_role("radio").nth(option).check()


def answer(page, number, option):
    choose(page, number, option)
    button(page, number).click()


@contextmanager
def shown(show, questions=QUESTIONS, **options):
    with show(Quiz(questions).static_html(), **options) as page:
        yield page


def looks(page):
    """Each option as a reader meets it, but for its text: what tells one from another."""
    return page.locator(".attn-option").evaluate_all(
        """all => all.map((e) => [e, ...e.querySelectorAll('*')].filter((e) => e.tagName !== 'CODE').map((e) =>
             [e.tagName, ...[...e.attributes].filter((a) => a.name !== 'value').map((a) => a.name + '=' + a.value),
              getComputedStyle(e).color, getComputedStyle(e).fontWeight]).join())"""
    )


def test_before_the_reader_commits_nothing_tells_the_answer(show):
    with shown(show) as page:
        assert texts(page, "legend") == ["1. Divide by what?", "2. Which mask?", "3. How many heads?"]
        assert texts(page, ".attn-option") == ["d", "√d", "d²", "causal", "padding", "one", "two", "four", "eight"]
        assert texts(page, ".attn-bar output") == ["0 of 3 answered, 0 right."]
        for number, option in ((0, 1), (0, 2), (2, 0)):
            choose(page, number, option)
            drawn = page.locator(".attn-asked").evaluate("e => e.outerHTML")
            assert not re.search(r"because|right|wrong|true|correct|verdict[^>]*>[^<]", drawn.replace(
                'aria-disabled="true"', ""), re.IGNORECASE)  # fmt: skip
            assert len(set(looks(page))) == 1, "all options are alike"
        assert texts(page, ".attn-bar output") == ["0 of 3 answered, 0 right."]


def test_a_choice_is_told_why_and_what_is_right(show):
    with shown(show) as page:
        button(page, 0).click(force=True)
        assert texts(page, ".attn-verdict")[0] == "Choose an answer first."
        answer(page, 0, 1)
        assert texts(page, ".attn-verdict")[0] == "Right. Because of √d."
        assert texts(page, ".attn-option")[:4] == ["d", "√d your choice, right", "d²", "causal"]
        answer(page, 1, 1)
        told = ["Wrong. Because of padding.", "The right option: causal", "Because of causal."]
        assert texts(page, ".attn-verdict p")[1:] == told
        assert texts(page, ".attn-option")[3:6] == ["causal right", "padding your choice, wrong", "one"]


def test_what_is_committed_is_locked(show):
    with shown(show) as page:
        answer(page, 2, 1)
        radios = form(page, 2).get_by_role("radio")
        assert [radios.nth(k).is_disabled() for k in range(4)] == [True, False, True, True]
        radios.nth(1).press("ArrowDown")
        form(page, 2).locator("label").nth(3).click(force=True)
        button(page, 2).click(force=True)
        radios.nth(1).press("Enter")
        assert [radios.nth(k).is_checked() for k in range(4)] == [False, True, False, False]
        assert button(page, 2).inner_text() == "Committed" and button(page, 2).get_attribute("aria-disabled") == "true"
        assert len(texts(page, ".attn-verdict p")) == 3 and texts(page, ".attn-bar output")[0].startswith("1 of 3")


def test_answers_are_counted_and_all_can_be_started_again(show):
    with shown(show) as page:
        again = page.get_by_role("button", name="Start again")
        for number, (option, said) in enumerate([(1, "1 of 3 answered, 1"), (1, "2 of 3 answered, 1"), (3, "3 of 3")]):
            assert not again.is_visible()
            answer(page, number, option)
            assert texts(page, ".attn-bar output")[0].startswith(said)
        assert texts(page, ".attn-bar output") == ["3 of 3 answered, 2 right."]
        again.click()
        assert texts(page, ".attn-bar output") == ["0 of 3 answered, 0 right."] and not again.is_visible()
        assert texts(page, ".attn-verdict p, .attn-tag") == [] and page.locator("input:checked").count() == 0
        assert page.evaluate("document.activeElement.closest('form').textContent").startswith("1. Divide")
        answer(page, 0, 2)
        assert texts(page, ".attn-bar output") == ["1 of 3 answered, 0 right."]


def test_paper_shows_what_is_asked_and_only_what_was_committed(show):
    with shown(show) as page:
        page.emulate_media(media="print")
        assert len(texts(page, "legend")) == 3 and len(texts(page, ".attn-option")) == 9
        assert texts(page, "button, .attn-bar, .attn-verdict, .attn-tag") == []
        page.emulate_media(media="screen")
        choose(page, 0, 1)
        answer(page, 1, 1)
        page.emulate_media(media="print")
        assert texts(page, ".attn-tag") == ["right", "your choice, wrong"] and texts(page, "button") == []
        assert len(texts(page, ".attn-verdict p")) == 3
