"""The quiz in a page: nothing is told before the reader commits, then the verdict and why; keys, looks, paper."""

import re
from contextlib import contextmanager
from importlib import resources

import pytest

from attn_book.widgets.quiz import Quiz

pytestmark = pytest.mark.browser


def question(asked, *options, right):
    texts = [{"text": text, "right": k == right, "why": f"Because of {text}."} for k, text in enumerate(options)]
    return {"question": asked, "options": texts}


QUESTIONS = [
    question("Divide by what?", "`d`", "√d", "d²", right=1),
    question("Which mask?", "causal", "padding", right=0),
    question("How many heads?", "one", "two", "four", "eight", right=3),
]
EVIL = """</script><img src=x onerror="window.hit = 1"><b>&"x'</b> $\\frac12$"""


def texts(page, selector):
    return page.locator(selector).locator("visible=true").all_inner_texts()


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


def test_commit_waits_for_a_choice(show):
    with shown(show) as page:
        assert [button(page, k).get_attribute("aria-disabled") for k in range(3)] == ["true"] * 3
        button(page, 1).click(force=True)
        form(page, 1).get_by_role("radio").first.press("Enter")
        assert page.locator("[data-answered]").count() == 0
        choose(page, 1, 1)
        assert [button(page, k).get_attribute("aria-disabled") for k in range(3)] == ["true", "false", "true"]


def test_a_right_choice_is_told_why(show):
    with shown(show) as page:
        answer(page, 0, 1)
        assert texts(page, ".attn-verdict p") == ["Right. Because of √d."]
        assert texts(page, ".attn-option") == ["d", "√d your choice, right", "d²", *texts(page, ".attn-option")[3:]]
        assert texts(page, ".attn-bar output") == ["1 of 3 answered, 1 right."]


def test_a_wrong_choice_is_told_why_and_what_is_right(show):
    with shown(show) as page:
        answer(page, 0, 0)
        assert texts(page, ".attn-verdict p") == [
            "Wrong. Because of d.",
            "The right option: √d",
            "Because of √d.",
        ]
        assert texts(page, ".attn-option")[:3] == ["d your choice, wrong", "√d right", "d²"]
        assert texts(page, ".attn-verdict code") == ["d"]
        assert texts(page, ".attn-bar output") == ["1 of 3 answered, 0 right."]
        assert len(texts(page, ".attn-tag")) == 2, "the other questions keep still"


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


def test_what_is_said_is_announced(show):
    with shown(show) as page:
        assert page.locator(".attn-bar output").get_attribute("aria-live") == "polite"
        assert page.get_by_role("status").count() == 4, "one for each question, and the count"
        names = page.get_by_role("group").evaluate_all(
            "all => all.map((e) => e.ariaLabel ?? e.querySelector('legend').textContent)"
        )
        assert names == ["Quiz", "1. Divide by what?", "2. Which mask?", "3. How many heads?"]


def test_markup_is_text_in_every_field(show):
    options = [{"text": f"{EVIL} {k}", "right": k == 1, "why": f"{EVIL} why {k}"} for k in range(2)]
    with shown(show, [{"question": EVIL, "options": options}]) as page:
        assert texts(page, "legend") == [f"1. {EVIL}"]
        assert texts(page, ".attn-text") == [f"{EVIL} 0", f"{EVIL} 1"]
        answer(page, 0, 0)
        assert [one.split(" ", 1)[1] for one in texts(page, ".attn-verdict p")][0] == f"{EVIL} why 0"
        assert texts(page, ".attn-verdict p")[1:] == [f"The right option: {EVIL} 1", f"{EVIL} why 1"]
        assert page.locator(".attn-quiz :is(img, b, script)").count() == 0 and page.evaluate("window.hit") is None


def test_code_stands_between_two_backticks(show):
    said = "`a<b>` and `q @ k.T`, not ` alone"
    with shown(show, [question(said, "`x`", "y", right=0)]) as page:
        assert texts(page, "legend code") == ["a<b>", "q @ k.T"]
        assert texts(page, "legend") == ["1. a<b> and q @ k.T, not ` alone"]


def focused(page):
    return page.evaluate(
        "(({type, value, textContent}) => type === 'radio' ? 'option ' + value : textContent)(document.activeElement)"
    )


def test_keys_do_all_that_a_pointer_does(show):
    with shown(show) as page:
        said = []
        for key in ("Tab", "Space", "ArrowDown", "Tab", "Enter", "Tab", "ArrowDown", "Tab", "Space"):
            page.keyboard.press(key)
            said.append(focused(page))
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        first = ["option 0", "option 0", "option 1", "Commit", "Committed"]
        assert said == [*first, "option 0", "option 1", "Commit", "Committed"], "the focus stays where it was"
        assert texts(page, ".attn-bar output") == ["2 of 3 answered, 1 right."]
        for key in ("Tab", "Space", "Enter"):
            page.keyboard.press(key)
        assert focused(page) == "option 0", "Enter commits, and the choice keeps the focus"
        assert texts(page, ".attn-bar output") == ["3 of 3 answered, 1 right."]
        for key in ("Tab", "Tab", "Enter"):
            page.keyboard.press(key)
        assert focused(page) == "option 0" and texts(page, ".attn-bar output") == ["0 of 3 answered, 0 right."]


def test_a_notebook_does_not_see_the_keys_that_choose(show):
    with shown(show) as page:
        page.evaluate("() => { window.seen = []; document.addEventListener('keydown', (e) => seen.push(e.key)); }")
        form(page, 0).get_by_role("radio").first.focus()
        for key in ("ArrowDown", "ArrowUp", "Escape"):
            page.keyboard.press(key)
        assert page.evaluate("seen") == ["Escape"]


def test_copies_on_a_page_are_independent(show):
    with show(Quiz(QUESTIONS).static_html() * 2) as page:
        for number in (0, 3):
            choose(page, number, number and 2)
        assert page.locator("input:checked").evaluate_all("all => all.map((e) => e.value)") == ["0", "2"]
        button(page, 3).click()
        assert texts(page, ".attn-bar output") == ["0 of 3 answered, 0 right.", "1 of 3 answered, 0 right."]


def test_a_kernel_gets_a_widget_that_can_be_taken_away(show):
    script = str(Quiz._esm).replace("export default", "const widget =")
    with show(f'<style>{Quiz._css}</style><div id="here"></div><script>{script}</script>') as page:
        start = "questions => { window.stop = widget.render({model: {get: () => questions}, el: window.here}); }"
        page.evaluate(start, Quiz(QUESTIONS).get_state()["questions"])
        answer(page, 1, 0)
        assert texts(page, ".attn-bar output") == ["1 of 3 answered, 1 right."]
        assert page.evaluate("[here.children.length, (stop(), here.children.length)]") == [1, 0]


@pytest.mark.parametrize("width", [900, 320])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_fault(show, theme, width):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: make test-browser")
    axe = (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")
    body = f"<main><h1>t</h1>{Quiz(QUESTIONS).static_html()}</main>"
    with show(body, theme=theme, width=width) as page:
        page.evaluate(axe)
        for step in (
            lambda: None,
            lambda: choose(page, 0, 0),
            lambda: button(page, 0).click(),
            lambda: [answer(page, k, 0) for k in (1, 2)],
        ):
            step()
            rules = {"target-size": {"enabled": True}}
            found = page.evaluate("rules => axe.run('html', {rules}).then((found) => found.violations)", rules)
            assert not found, [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


@pytest.mark.parametrize("media", ["screen", "print"])
@pytest.mark.parametrize("width", [300, 320, 700])
def test_nothing_leaves_a_narrow_screen(show, width, media):
    long = question("`" + "W" * 90 + "` or " + "w" * 90 + "?", "`" + "code" * 30 + "`", "M" * 90, right=0)
    with shown(show, [long, *QUESTIONS], width=width) as page:
        answer(page, 0, 1)
        page.emulate_media(media=media)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        edge = page.locator(".attn-card").evaluate("e => e.getBoundingClientRect().right")
        inside = "all => all.map((e) => [e.className, e.getBoundingClientRect().right])"
        assert [one for one in page.locator(".attn-card *").evaluate_all(inside) if one[1] > edge - 5] == []
        cut = "all => all.filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth).map((e) => e.className)"
        assert page.locator(".attn-card, .attn-card *").evaluate_all(cut) == []


def test_a_theme_that_floats_legends_changes_nothing(show):
    def at(page):
        return page.locator("legend, .attn-option").evaluate_all(
            "all => all.map((e) => [e.getBoundingClientRect().y, getComputedStyle(e).fontSize])"
        )

    rules = "legend{float:left;margin-bottom:.5rem;padding:2px;font-size:1.5rem}fieldset{padding:9px}"
    with shown(show) as page:
        alone = at(page)
    with show(f"<style>{rules}</style>{Quiz(QUESTIONS).static_html()}") as page:
        assert at(page) == alone


def test_follows_the_theme_and_prints_light(show):
    with shown(show) as page:
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.wait_for_selector(".attn-card[data-theme=dark]")
        assert page.locator(".attn-card").evaluate("e => getComputedStyle(e).colorScheme") == "dark"
        page.emulate_media(media="print")
        page.wait_for_selector(".attn-card[data-theme=light]")
        assert page.locator(".attn-card").evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"


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


def test_nothing_moves(show):
    with shown(show, reduced_motion="reduce") as page:
        answer(page, 0, 1)
        assert page.evaluate("document.getAnimations().length") == 0
        moving = """all => all.filter((e) => getComputedStyle(e).transitionDuration !== '0s'
                    || getComputedStyle(e).animationName !== 'none').length"""
        assert page.locator(".attn-card *").evaluate_all(moving) == 0


def test_without_scripts_the_picture_stands(show, drawn):
    with shown(show, java_script_enabled=False) as page:
        image = page.locator(".attn-picture")
        assert image.is_visible() and image.bounding_box()["width"] > 300
        assert "2. Which mask? 3. How many heads?" in image.get_attribute("alt")
