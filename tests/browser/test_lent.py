"""A page that served a test before is as new to the next."""

import pytest

pytestmark = pytest.mark.browser

BUTTON = "<style>button:hover { color: red }</style><button style='width: 99vw; height: 99vh'>b</button>"
MEDIA = ["print", "(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)"]
STATE = """(media) => [innerWidth, innerHeight, ...media.map((one) => matchMedia(one).matches),
  localStorage.length, sessionStorage.length, document.activeElement.tagName,
  document.querySelector("button").matches(":hover"), window.left ?? null]"""


def test_nothing_of_an_earlier_test_is_left(show):
    with show(BUTTON, theme="dark", reduced_motion="reduce") as used:
        used.set_viewport_size({"width": 300, "height": 200})
        used.emulate_media(media="print")
        used.locator("button").click()
        used.evaluate("window.left = localStorage.left = sessionStorage.left = 1")
        left = used.evaluate(STATE, MEDIA)
    with show(BUTTON) as page:
        assert page is used
        assert page.evaluate(STATE, MEDIA) == [900, 900, False, False, False, 0, 0, "BODY", False, None]
    assert left == [300, 200, True, True, True, 1, 1, "BUTTON", True, 1]


def test_what_lasts_is_taken_apart_and_what_was_wrong_is_forgotten(lend):
    with lend(("file:",), width=300) as (first, wrong):
        first.goto("data:text/html,<script>console.error('a')</script>")
        assert wrong == ["a"]
        first.goto("file:///")
    with lend(("file:",), width=300) as (page, wrong), lend(("file:",), width=300, apart=True) as (other, _):
        assert page is first is not other and wrong == []
        page.goto("file:///")
        other.goto("file:///")
