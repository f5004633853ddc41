"""A prediction comes before its answer, on the built pages."""

import pytest

from tests.book import built_site as site

pytestmark = pytest.mark.browser
PAGES = [page for page in site.chapters() if site.parsed(page).select(".admonition.predict")]


@pytest.fixture
def page(visit):
    return visit(PAGES[0]).page


def form(page):
    return page.locator("form.prediction").first


def waiting(page):
    return page.locator(".unanswered").count()


def test_most_boxes_ask(visit):
    page = visit(PAGES[-1]).page
    boxes, forms = (page.locator(what).count() for what in (".admonition.predict", "form.prediction"))
    assert len(PAGES) > 10 and 0.8 * boxes < forms <= boxes
    assert not page.locator(".unanswered").first.is_visible()


def test_a_prediction_stands_above_its_answer_and_has_the_focus(page):
    before = waiting(page)
    form(page).get_by_role("button", name="Compare").click()
    assert waiting(page) == before, "nothing was predicted"
    form(page).get_by_role("textbox", name="Your prediction").fill(" <b>twice</b> ")
    form(page).get_by_role("textbox").press("Enter")
    said = page.locator(".predicted:focus")
    page.wait_for_function("Math.abs(document.querySelector('.predicted').getBoundingClientRect().top - 350) < 290")
    assert said.inner_text() == "Your prediction: <b>twice</b>" and waiting(page) < before
    assert said.locator("+ .cell_output").is_visible()


def test_the_answer_shows_without_a_prediction_too(page):
    before = waiting(page)
    form(page).get_by_role("button", name="Show the answer").click()
    assert waiting(page) < before and page.locator(".predicted:focus").inner_text() == "The answer"


def test_what_was_predicted_and_answered_is_kept_and_counted_until_it_is_cleared(page):
    total, right = page.locator(".kept-answers"), page.locator(".attn-quiz output")
    forms = page.locator("form.prediction").count()
    page.evaluate("document.querySelector('.attn-quiz input').click()")
    page.locator(".attn-quiz form button").first.click()
    form(page).get_by_role("textbox").fill("twice")
    form(page).get_by_role("textbox").press("Enter")
    page.reload()
    assert page.locator(".predicted").inner_text() == "Your prediction: twice" and right.inner_text().startswith("1 of")
    assert total.inner_text().startswith(f"1 of {forms} predicted")
    with page.expect_navigation():
        total.get_by_role("button").click()
    page.wait_for_function("document.activeElement.innerText.includes('are cleared')")
    assert "predicted" not in total.inner_text() and right.inner_text().startswith("0 of")
    assert page.locator("form.prediction").count() == forms


def test_a_link_into_an_answer_opens_it(page):
    name = page.locator(".unanswered[id], .unanswered [id]").first.get_attribute("id")
    before = waiting(page)
    page.evaluate("name => { location.hash = name; }", name)
    page.wait_for_function("before => document.querySelectorAll('.unanswered').length < before", arg=before)
    assert page.locator(f"[id='{name}']").is_visible()


def test_paper_and_a_page_without_scripts_show_everything(visit):
    page = visit(PAGES[0]).page
    page.emulate_media(media="print")
    assert page.locator(".unanswered").first.is_visible()
    plain = visit(PAGES[0], java_script_enabled=False).page
    assert plain.locator(".unanswered, form.prediction").count() == 0


@pytest.mark.parametrize(("what", "waits"), [(".answer", True), (".after-answer", False)])
def test_a_page_says_what_else_belongs_to_an_answer_and_what_no_more(visit, what, waits):
    marked = [page for page in PAGES if site.parsed(page).select(what)]
    assert marked
    for path in marked[:3]:  # by one rule of style on all
        shown = visit(path).page.locator(what)
        assert [element.is_visible() for element in shown.all()] == [not waits] * shown.count()
