"""The site opened from a disk, out of a release's zip: links, widgets, formulas and the search, without a server."""

import zipfile

import pytest

from tests.book import built_site as site
from website import release

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The site out of the zip that a release has."""
    folder = tmp_path_factory.mktemp("release with a blank")
    release.pack(site.HTML, folder / "book.zip")
    with zipfile.ZipFile(folder / "book.zip") as archive:
        archive.extractall(folder)
    return folder / "book"


@pytest.fixture
def page(browser):
    context = browser.new_context()
    context.set_offline(True)
    opened = context.new_page()
    opened.errors = []
    opened.on("pageerror", lambda error: opened.errors.append(str(error)))
    opened.on("request", lambda r: opened.errors.append(r.url) if r.url.startswith("http") else None)
    yield opened
    context.close()


def test_a_chapter_has_its_formulas_and_its_widgets(page, unpacked):
    page.goto((unpacked / "chapters" / "01_pooling.html").as_uri())
    page.wait_for_selector("article mjx-container", state="attached")  # the first may stand in a folded box
    assert page.locator(".attn-static").count() > 0
    assert page.locator(".attn-static .attn-picture").count() == 0  # a picture stands until the widget runs
    assert page.errors == []


@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize("name", ["07_transformer", "20_modalities"])
def test_a_model_comes_later_into_the_room_of_its_widget_or_is_missed(page, unpacked, name, width):
    file = unpacked / "chapters" / f"{name}.html"
    page.set_viewport_size({"width": width, "height": 900})
    host = site.parsed(f"chapters/{name}.html").select_one("[data-attn-model]")
    model, place = file.parent / host["data-attn-model"], page.locator("[data-attn-model]")
    hidden = model.rename(model.with_suffix(".hidden"))
    page.goto(file.as_uri())
    place.get_by_role("alert").wait_for()
    room = place.bounding_box()["height"]
    hidden.rename(model)
    page.reload()
    place.locator(".attn-card").wait_for()
    assert place.bounding_box()["height"] == pytest.approx(room, rel=0.1) and page.errors == []


def test_one_walks_from_page_to_page(page, unpacked):
    page.goto((unpacked / "index.html").as_uri())
    page.locator("article a[href$='chapters/07_transformer.html']").first.click()
    page.wait_for_url("**/chapters/07_transformer.html")  # which also waits until the page is read to its end
    assert "The Transformer" in page.locator("article h1").inner_text()
    page.locator(".prev-next-area a.right-next").click()
    page.wait_for_url("**/chapters/08_looks.html")
    page.goto((unpacked / "chapters" / "11_kv_cache.html").as_uri() + "?way=inference")
    page.locator(".right-next[href*=way]").click()
    page.wait_for_url("**/chapters/12_serving.html?way=inference")
    page.locator(".way-bar").wait_for()
    assert page.errors == []


def test_the_search_finds(page, unpacked):
    page.goto((unpacked / "chapters" / "07_transformer.html").as_uri())
    page.keyboard.press("Control+k")
    page.keyboard.type("bandwidth")
    page.keyboard.press("Enter")
    page.wait_for_url("file:///**/chapters/01_pooling.html#*")  # which also waits until the page is read to its end
    assert page.errors == []
